/* The optimizers: see optim.h. */
#include "engine/optim/optim.h"

#define STEP(name)                                    \
    static optim_step *name(const struct kernels *k)  \
    {                                                 \
        return k->name;                               \
    }
STEP(adamw)
STEP(lion)
STEP(adagrad)
STEP(sgd)

/* In the order of enum optim_type. */
static const struct optim optims[] = {
    [OPTIM_ADAMW] = {"AdamW", OPTIM_M | OPTIM_V, 1, 0, 0.9, 0.999, 1e-8, adamw},
    [OPTIM_ADAM] = {"Adam", OPTIM_M | OPTIM_V, 1, 0, 0.9, 0.999, 1e-8, adamw},
    [OPTIM_LION] = {"Lion", OPTIM_M, 1, 0, 0.9, 0.99, 0, lion},
    [OPTIM_ADAGRAD] = {"Adagrad", OPTIM_V, 0, 0, 0, 0, 1e-10, adagrad},
    [OPTIM_SGD] = {"SGD", OPTIM_M, 0, 0, 0, 0, 0, sgd},
    [OPTIM_LAMB] = {"Lamb", OPTIM_M | OPTIM_V, 1, 1, 0.9, 0.999, 1e-8, NULL},
};

const struct optim *optim_of(const struct job *job)
{
    return &optims[job->optim];
}

int optim_moment(const struct job *job, enum optim_moments moment)
{
    if (job->optim == OPTIM_SGD && job->momentum <= 0)
        return 0;
    return (optims[job->optim].moments & moment) != 0;
}

int optim_variant(const struct job *job)
{
    if (job->optim == OPTIM_SGD)
        return job->nesterov;
    return job->optim == OPTIM_ADAMW || job->adam_w_mode;
}

/* Keys that only some optimizers have. */
static int check_keys(const struct job *job, const struct settings *s, struct err *err)
{
    const struct optim *o = optim_of(job);
    const struct {
        const char *path;
        int used;
    } key[] = {
        {"optimizer.params.betas", o->has_betas},
        {"optimizer.params.eps", o->eps > 0},
        {"optimizer.params.momentum", job->optim == OPTIM_SGD},
        {"optimizer.params.nesterov", job->optim == OPTIM_SGD},
        {"optimizer.params.adam_w_mode", job->optim == OPTIM_ADAM || job->optim == OPTIM_ADAMW},
        {"optimizer.params.max_coeff", job->optim == OPTIM_LAMB},
        {"optimizer.params.min_coeff", job->optim == OPTIM_LAMB},
    };

    for (size_t i = 0; i < sizeof key / sizeof *key; i++)
        if (!key[i].used && settings_given(s, key[i].path))
            return err_set(err, ERR_INPUT, "%s: the optimizer %s has no such parameter; take it out, or change "
                           "optimizer.type", key[i].path, o->name);
    if (job->optim == OPTIM_ADAMW && !job->adam_w_mode)
        return err_set(err, ERR_INPUT, "optimizer.params.adam_w_mode = false: AdamW always decays weights beside the "
                       "gradient; write optimizer.type = Adam, or take it out");
    if (job->nesterov && job->momentum <= 0)
        return err_set(err, ERR_INPUT, "optimizer.params.nesterov needs optimizer.params.momentum over 0");
    if (job->min_coeff > job->max_coeff)
        return err_set(err, ERR_INPUT, "optimizer.params.min_coeff = %g is over max_coeff = %g; exchange them",
                       job->min_coeff, job->max_coeff);
    return 0;
}

int optim_defaults(struct job *job, const struct settings *s, struct err *err)
{
    const struct optim *o = optim_of(job);

    if (check_keys(job, s, err) < 0)
        return -1;
    if (!settings_given(s, "optimizer.params.betas"))
        job->betas = (struct setting_list){2, {o->beta1, o->beta2}};
    if (!settings_given(s, "optimizer.params.eps"))
        job->eps = o->eps;
    return 0;
}
