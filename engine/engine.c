/* The engine from outside: see engine.h. */
#include "engine/engine.h"

#include "engine/base/build.h"
#include "engine/base/job.h"
#include "engine/base/log.h"
#include "engine/ckpt/ckpt.h"
#include "engine/comm/comm.h"
#include "engine/data/data.h"
#include "engine/model/model.h"
#include "engine/train/sample.h"
#include "engine/train/train.h"

#include <stdio.h>
#include <string.h>

int ds_register(const struct ds_layer_ops *ops)
{
    return model_register(ops);
}

static void print_settings(void)
{
    struct buf out = BUF_INIT;
    const struct ds_layer_ops *const *list;
    int n = model_types(&list);

    settings_help(job_table, job_table_n, &out);
    fputs(buf_str(&out), stdout);
    for (int i = 0; i < n; i++) {
        int seen = 0;

        for (int j = 0; j < i; j++)
            seen |= list[j]->settings == list[i]->settings;
        if (seen)
            continue;
        buf_reset(&out);
        settings_help(list[i]->settings, list[i]->nsettings, &out);
        fputs(buf_str(&out), stdout);
    }
    buf_clear(&out);
}

static int info_main(int argc, char **argv)
{
    char why[256] = "";

    if (argc > 1 && !strcmp(argv[1], "--settings")) {
        print_settings();
        return 0;
    }
    printf("build     %s\n", build_id());
    printf("kernels   cpu: %s, bf16 products %s\n", kernels_cpu_isa(),
           kernels_cpu_bf16_native() ? "native" : "emulated in fp32");
    for (int i = 0; devices[i]; i++)
        printf("device    %s: %s%s\n", devices[i]->name,
               devices[i]->probe(why) == 0 ? "yes, " : "no, ", why);
    return 0;
}

int ds_main(int argc, char **argv)
{
    log_open(argc && strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argc ? argv[0] : "ds-rank");
    if (argc < 2)
        return train_main();
    argc--;
    argv++;
    if (!strcmp(argv[0], "check"))
        return train_check_main(argc, argv);
    if (!strcmp(argv[0], "lr"))
        return train_lr_main(argc, argv);
    if (!strcmp(argv[0], "sample"))
        return sample_main(argc, argv);
    if (!strcmp(argv[0], "ckpt"))
        return ckpt_main(argc, argv);
    if (!strcmp(argv[0], "data"))
        return data_main(argc, argv);
    if (!strcmp(argv[0], "info"))
        return info_main(argc, argv);
    if (!strcmp(argv[0], "--build-id")) {
        puts(build_id());
        return 0;
    }
    log_error("unknown word '%s': it is one of check, lr, sample, ckpt, data, info", argv[0]);
    return 2;
}
