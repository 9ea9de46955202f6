/* A channel's bytes: frames, fed in pieces, and the payloads of HELLO and SPAWN in them (HELLO's
 * without its build id, which is put in front here, or every input would end there). */
#include "tests/fuzz/fuzz.h"
#include "launcher/msg.h"
#include "launcher/spawn.h"

static void read_hello(const struct msg *m)
{
    struct buf b = BUF_INIT;
    struct hello h;

    put_str(&b, build_id());
    buf_add(&b, m->data, m->len);
    if (hello_get(&h, b.data, b.len, NULL) == 0)
        hello_clear(&h);
    buf_clear(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct msg_decoder d = {BUF_INIT, 0};
    struct err err = ERR_INIT;
    struct msg m;
    struct spawn s;
    size_t piece = n ? 1 + data[0] % 64 : 1;

    for (size_t at = 0; at < n; at += piece) {
        msg_feed(&d, data + at, n - at < piece ? n - at : piece);
        while (msg_next(&d, &m, &err) == 1) {
            if ((m.type == MSG_SPAWN || m.type == MSG_CHECK) &&
                spawn_get(&s, m.data, m.len, &err) == 0)
                spawn_clear(&s);
            if (m.type == MSG_HELLO)
                read_hello(&m);
        }
    }
    msg_decoder_clear(&d);
    return 0;
}
