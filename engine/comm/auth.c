/* Proof that a peer holds the job's key: HMAC of libsodium, the one place in comm that includes it.
 */
#include "engine/comm/group.h"

#include <sodium.h>
#include <stdlib.h>

_Static_assert(crypto_auth_KEYBYTES == 32 && crypto_auth_BYTES == 32, "sizes in group.h");

void auth_nonce(uint8_t out[32])
{
    if (sodium_init() < 0)
        abort(); /* no source of random numbers: nothing can be proved */
    randombytes_buf(out, 32);
}

void auth_sign(const uint8_t key[32], const void *data, size_t n, uint8_t out[32])
{
    crypto_auth(out, data, n, key);
}

int auth_equal(const uint8_t a[32], const uint8_t b[32])
{
    return sodium_memcmp(a, b, 32) == 0;
}
