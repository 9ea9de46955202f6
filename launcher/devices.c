/* Devices of a node's ranks: see devices.h. */
#include "launcher/devices.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

int devices_count(void)
{
    DIR *d = opendir("/dev");
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)))
        n += strncmp(e->d_name, "nvidia", 6) == 0 && e->d_name[6] >= '0' && e->d_name[6] <= '9';
    if (d)
        closedir(d);
    return n;
}

/* Entry number i, its length in *n; NULL when the mask has fewer. CUDA stops at the first that is -1 or empty. */
static const char *entry(const char *mask, int i, size_t *n)
{
    for (;; i--) {
        mask += strspn(mask, " ");
        *n = strcspn(mask, ",");
        if (!*n || (*n == 2 && !strncmp(mask, "-1", 2)) || !strncmp(mask, "NoDevFiles", 10))
            return NULL;
        if (i == 0)
            break;
        mask += *n + (mask[*n] == ',');
    }
    while (*n && mask[*n - 1] == ' ')
        --*n;
    return mask;
}

int devices_visible(const char *mask)
{
    size_t len;
    int n = 0;

    if (!mask)
        return -1;
    while (entry(mask, n, &len))
        n++;
    return n;
}

/* Where the node's own id stands in the mask; -1: it does not. */
static int find_id(const char *mask, int id)
{
    char want[16];
    const char *e;
    size_t len;
    int i;

    snprintf(want, sizeof want, "%d", id);
    for (i = 0; (e = entry(mask, i, &len)); i++)
        if (len == strlen(want) && !strncmp(e, want, len))
            return i;
    return -1;
}

/* 1: every device stands in the mask by its id; 2: as a position in it; 0: neither. */
static int reading(const char *mask, const int *device, int n, int named)
{
    int visible = devices_visible(mask), ids = 1, positions = 1, i;

    for (i = 0; i < n; i++) {
        ids = ids && find_id(mask, device[i]) >= 0;
        positions = positions && device[i] < visible;
    }
    return (named || !positions) && ids ? 1 : positions ? 2 : 0;
}

static int too_few(const char *mask, int visible, const int *device, int n, struct err *err)
{
    int i, most = 0;

    for (i = 0; i < n; i++)
        most = device[i] > most ? device[i] : most;
    if (mask && n > visible)
        return err_set(err, ERR_INPUT_LIMIT, "CUDA_VISIBLE_DEVICES=%s allows %d device%s for %d ranks: ask for "
                       "fewer slots there, or --export CUDA_VISIBLE_DEVICES= if they need none", mask, visible,
                       visible == 1 ? "" : "s", n);
    return err_set(err, ERR_INPUT_LIMIT, "%s%s%s %d device%s, none is number %d: name other slots or devices",
                   mask ? "CUDA_VISIBLE_DEVICES=" : "it has", mask ? mask : "",
                   mask ? " allows" : "", visible, visible == 1 ? "" : "s", most);
}

int devices_choose(const char *mask, int present, const int *device, int n, int named, struct buf *out,
                   struct err *err)
{
    int visible = mask ? devices_visible(mask) : present, how = 0, i;

    if (!visible)
        return 0;
    if (mask)
        how = reading(mask, device, n, named);
    for (i = 0; i < n && !mask; i++)
        if (device[i] >= present)
            return n > present && !named ? 0 : too_few(NULL, present, device, n, err);
    if (mask && !how)
        return too_few(mask, visible, device, n, err);
    for (i = 0; i < n; i++) {
        size_t len;
        const char *e = mask ? entry(mask, how == 1 ? find_id(mask, device[i]) : device[i], &len) : NULL;

        if (i)
            buf_addc(out, ',');
        if (e)
            buf_add(out, e, len);
        else
            buf_addf(out, "%d", device[i]);
    }
    return 0;
}
