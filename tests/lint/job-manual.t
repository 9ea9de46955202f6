#!/bin/sh
# ds-job(5) lists every setting with its default and nothing else, as `ds-rank info --settings` does.
rank=${top_builddir:-.}/ds-rank
page=${top_srcdir:-.}/doc/ds-job.5
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# PATH DEFAULT, of what is ours
"$rank" info --settings | awk '
    /^[^ ]/ { path = $1; next }
    path != "" && /known from DeepSpeed|another name of/ { path = ""; next }
    path != "" { d = ""; if (match($0, /default .*/)) d = substr($0, RSTART); print path, d; path = "" }' |
    sort -u >"$tmp/program"
sed -n '/^\.SH SETTINGS/,/^\.SH EXAMPLE/p' "$page" | sed 's/\\-/-/g' | awk '
    /^\.B / { path = $2; next }
    path != "" { d = ""; if (match($0, /default .*\./)) d = substr($0, RSTART, RLENGTH - 1); print path, d; path = "" }' |
    sort -u >"$tmp/page"

echo 1..2
if [ "$(wc -l <"$tmp/program")" -gt 50 ]; then echo "ok 1 - the program lists its settings"
else echo "not ok 1 - the program lists its settings"; fi
if diff "$tmp/program" "$tmp/page" | sed 's/^/# /'; cmp -s "$tmp/program" "$tmp/page"; then
    echo "ok 2 - ds-job(5) has the same settings and defaults"
else echo "not ok 2 - ds-job(5) has the same settings and defaults"; fi
