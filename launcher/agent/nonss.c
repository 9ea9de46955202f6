/* The static agent asks nothing of the name service. libuv's archive refers to getpwuid_r from a
 * function that we never call; this definition keeps glibc's, and with it NSS and dlopen, out of
 * the program. */
#include <errno.h>
#include <pwd.h>
#include <stddef.h>

int getpwuid_r(uid_t uid, struct passwd *pwd, char *text, size_t n, struct passwd **result)
{
    *result = NULL;
    return ENOSYS;
}
