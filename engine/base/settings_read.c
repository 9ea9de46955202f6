/* Files of settings to rows and back: which form a file has, the list of rows, INI text out. */
#include "engine/base/settings_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_BYTES (1 << 20) /* a job file has a few hundred bytes */

void settings_rows_add(struct settings_rows *rows, const char *path, const char *value,
                       const char *where)
{
    struct settings_row *r = (struct settings_row *)rows_find(rows, path);

    if (r) {
        char *v = xstrdup(value), *w = xstrdup(where);

        free(r->value);
        free(r->where);
        r->value = v;
        r->where = w;
        return;
    }
    ARRAY_GROW(rows->row, rows->n, rows->cap);
    rows->row[rows->n++] = (struct settings_row){xstrdup(path), xstrdup(value), xstrdup(where)};
}

const struct settings_row *rows_find(const struct settings_rows *rows, const char *path)
{
    for (int i = 0; i < rows->n; i++)
        if (strcmp(rows->row[i].path, path) == 0)
            return &rows->row[i];
    return NULL;
}

void settings_rows_clear(struct settings_rows *rows)
{
    for (int i = 0; i < rows->n; i++) {
        free(rows->row[i].path);
        free(rows->row[i].value);
        free(rows->row[i].where);
    }
    free(rows->row);
    *rows = (struct settings_rows){0};
}

static size_t section_length(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? (size_t)(dot - path) : 0;
}

/* Rows of the top level come first: INI has no way back to it from a section. */
static void print_row(const struct settings_row *r, const char *key, int with_where, struct buf *out)
{
    if (with_where && !strpbrk(r->where, "\r\n"))
        buf_addf(out, ";@ %s\n", r->where);
    buf_addf(out, "%s = %s\n", key, r->value);
}

static void print_rows(const struct settings_rows *rows, int with_where, struct buf *out)
{
    const char *section = NULL;
    size_t len = 0;

    for (int i = 0; i < rows->n; i++)
        if (!section_length(rows->row[i].path))
            print_row(&rows->row[i], rows->row[i].path, with_where, out);
    for (int i = 0; i < rows->n; i++) {
        const struct settings_row *r = &rows->row[i];
        size_t n = section_length(r->path);

        if (!n)
            continue;
        if (!section || n != len || strncmp(section, r->path, n) != 0)
            buf_addf(out, "[%.*s]\n", (int)n, r->path);
        section = r->path;
        len = n;
        print_row(r, r->path + n + 1, with_where, out);
    }
}

void settings_rows_print(const struct settings_rows *rows, struct buf *out)
{
    print_rows(rows, 0, out);
}

void settings_rows_ship(const struct settings_rows *rows, struct buf *out)
{
    print_rows(rows, 1, out);
}

int path_is_valid(const char *path)
{
    int start = 1; /* of a name between dots */

    for (const char *p = path; *p; p++) {
        int plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                    (*p >= '0' && *p <= '9') || *p == '_' || *p == '-';

        if (!plain && (*p != '.' || start))
            return 0;
        start = *p == '.';
    }
    return !start;
}

static int is_blank(char c)
{
    return c == ' ' || c == '\t';
}

const char *value_not_carried(const char *value)
{
    size_t n = strlen(value);

    if (n > 3000)
        return "is longer than 3000 bytes";
    for (const char *p = value; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return "has a control character in it";
        if ((*p == ';' || *p == '#') && (p == value || is_blank(p[-1])))
            return "has a ; or # at its start or behind a blank: that begins a comment";
    }
    if (n && (is_blank(value[0]) || is_blank(value[n - 1])))
        return "begins or ends with a blank";
    return NULL;
}

int settings_read(struct settings_rows *rows, const char *name, const char *text, size_t len,
                  struct err *err)
{
    struct errors errors = {BUF_INIT, 0, 0};
    struct settings_rows own = {
        0}; /* a key twice in one file is an error, over another file's it is not */
    const char *nul = memchr(text, 0, len);
    size_t blank = 0;

    if (nul) {
        int line = 1;

        for (const char *p = text; p < nul; p++)
            line += *p == '\n';
        return err_set(err, ERR_INPUT_FILE, "%s:%d: has a NUL byte: this is not a text file", name,
                       line);
    }
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        len -= 3;
    }
    while (blank < len && strchr(" \t\r\n", text[blank]))
        blank++;
    if (blank < len && text[blank] == '{')
        json_read(&own, name, text, len, &errors);
    else
        ini_read(&own, name, text, len, &errors);
    for (int i = 0; i < own.n; i++)
        settings_rows_add(rows, own.row[i].path, own.row[i].value, own.row[i].where);
    settings_rows_clear(&own);
    return errors_done(&errors, err);
}

/* The whole file in out. The file may be a pipe. */
static int read_whole(int fd, const char *path, struct buf *out, struct err *err)
{
    ssize_t n;

    do {
        buf_reserve(out, 65536);
        n = read(fd, out->data + out->len, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(err, ERR_INPUT_FILE, "%s: cannot be read: %m", path);
        out->len += (size_t)n;
        if (out->len > FILE_MAX_BYTES)
            return err_set(err, ERR_INPUT_FILE, "%s: larger than 1 MiB: this is not a job file",
                           path);
    } while (n != 0);
    return 0;
}

int settings_read_file(struct settings_rows *rows, const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc;
    struct settings_rows own = {0};
    struct buf text = BUF_INIT;

    if (fd < 0)
        return err_set(err, ERR_INPUT_FILE, "%s: cannot be opened: %m; give the path of a file that can be read", path);
    rc = read_whole(fd, path, &text, err);
    close(fd);
    if (rc == 0)
        rc = settings_read(&own, path, buf_str(&text), text.len, err);
    if (rc == 0 && own.n == 0)
        rc = err_set(err, ERR_INPUT_FILE, "%s: no settings in it", path);
    for (int i = 0; i < own.n; i++)
        settings_rows_add(rows, own.row[i].path, own.row[i].value, own.row[i].where);
    settings_rows_clear(&own);
    buf_clear(&text);
    return rc;
}
