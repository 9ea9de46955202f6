/* Any bytes as what others write for us to read: a rank's error file (JSON), torchrun's --tee and
 * --local-ranks-filter, the environment that a --venv_script leaves. Laws: no value where the text is not valid;
 * a choice of streams is 0 to 3, and one that is refused chooses nothing the check let pass. */
#include "launcher/agent/agent.h"
#include "launcher/jsonget.h"
#include "launcher/rankenv.h"
#include "launcher/torchlog.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void error_file(const char *text, size_t n)
{
    struct buf out = BUF_INIT;
    const char *inner = text;
    size_t len = n;
    double number;
    int valid = jsonget_valid(text, n);

    LAW(valid || jsonget_string(text, n, "message", &out));
    LAW(valid || jsonget_number(text, n, "message", &number));
    if (!jsonget_object(&inner, &len, "message")) {
        LAW(valid && inner > text && inner + len <= text + n && jsonget_valid(inner, len));
        jsonget_string(inner, len, "message", &out);
    }
    buf_clear(&out);
}

static void environment(const char *text, size_t n)
{
    char **env = venv_take(text, n);
    size_t total = 0;

    LAW(!env == (!n || text[n - 1]));
    for (int i = 0; env && env[i]; i++) {
        LAW(strchr(env[i], '='));
        total += strlen(env[i]) + 1;
    }
    LAW(total <= n);
    rankenv_free(env);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct buf text = BUF_INIT;

    buf_add(&text, data, n);
    error_file(buf_str(&text), n);
    environment(buf_str(&text), n);
    for (int rank = 0; rank < 3 && !torchlog_which_check(buf_str(&text)); rank++) {
        int which = torchlog_which(buf_str(&text), rank);

        LAW(which >= 0 && which <= 3);
    }
    if (!torchlog_filter_check(buf_str(&text)))
        torchlog_filter(buf_str(&text), 1);
    else
        LAW(!torchlog_filter(buf_str(&text), 1));
    buf_clear(&text);
    return 0;
}
