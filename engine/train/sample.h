/* Text from a checkpoint. */
#ifndef DS_SAMPLE_H
#define DS_SAMPLE_H

/* ds-rank sample CKPT [--prompt TEXT] [--tokens N] [--temperature X] [--top-k K] [--seed S]: prompt and
 * continuation on stdout through DECODE with a cache. Returns the exit status. */
int sample_main(int argc, char **argv);

#endif
