/* One build's identity. The two ends of every channel and link compare it, and the agent is kept on
 * nodes under it. */
#ifndef DS_BASE_BUILD_H
#define DS_BASE_BUILD_H

/* Version and a hash of the sources, compiler and flags it was made from: "0.1.0-9f86d081884c7d65". */
const char *build_id(void);

#endif
