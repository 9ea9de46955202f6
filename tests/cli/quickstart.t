#!/bin/bash
# quickstart's own decisions, in a folder where make, apt-get and dpkg-query are stand-ins that do as a test
# says: what is installed and when, the totals of the tests, and what is refused.
. "${top_srcdir:?}/tests/cli/taplib.sh" || exit 99
mkdir -p "$here/tree/build" "$here/bin" "$here/debian" && cd "$here/tree" || exit 99
cp "$top_srcdir/quickstart" "$top_srcdir/packages.txt" . && touch build/Makefile
printf '#!/bin/sh\n' >configure && chmod +x configure quickstart
for tool in bash sh awk sed cat id mkdir dirname basename find tail nproc grep tee rm touch env cksum tr; do
    ln -s "$(command -v $tool)" "$here/bin/$tool"
done

# make: writes the result files that $here/results lists; a debian: what dpkg-query says is not there
cat >"$here/bin/make" <<END
#!/bin/sh
echo "make \$*" >>$here/calls
case "\$*" in *check*) ;; *) exit 0 ;; esac
n=0
while read -r result; do
    n=\$((n + 1))
    echo ":test-result: \$result" >>build/t\$n.trs
    [ "\$result" = FAIL ] && echo "FAIL: t\$n"
done <$here/results
echo "# TOTAL: \$n"
grep -q '^FAIL' $here/results && exit 2
exit 0
END
cat >"$here/debian/dpkg-query" <<END
#!/bin/sh
for name; do :; done
grep -qx "\$name" $here/absent && exit 1
echo "install ok installed"
END
printf '#!/bin/sh\necho "apt-get $*" >>%s/calls\n' "$here" >"$here/debian/apt-get"
printf '#!/bin/sh\nexec "$@"\n' >"$here/debian/sudo"
chmod +x "$here"/bin/make "$here"/debian/*

quick() { # quick PATH ARGUMENTS...: output and status into $out and $rc
    local path=$1
    shift
    : >"$here/calls"
    out=$(env -i PATH="$path" HOME="$here" ${no_apt:+DS_QUICKSTART_NO_APT=1} ./quickstart "$@" 2>&1 </dev/null)
    rc=$?
}
last() { printf '%s\n' "$out" | tail -n 1; }

no_apt=
quick "$here/bin" check
is "without apt: status" $rc 1
like "without apt: the list" "$out" "  libssh-dev"
is "without apt: nothing is built" "$(cat "$here/calls")" ""

no_apt=1
printf 'PASS a\nSKIP b\nPASS c\nXFAIL d\n' >"$here/results"
echo ':test-result: FAIL of an earlier run' >build/old.trs
quick "$here/bin" check
is "totals of a good run" "$(last)" "3 passed, 0 failed, 1 skipped"
is "status of a good run" $rc 0
is "the first line says what is done, and where its output is" "$(printf '%s\n' "$out" | head -n 1)" \
    "quickstart: building, which takes a minute or two the first time; the output is in $PWD/build/quickstart.log"
printf 'PASS\nFAIL\nERROR\n' >"$here/results"
quick "$here/bin" check
is "totals of a bad run" "$(last)" "1 passed, 2 failed, 0 skipped"
is "status of a bad run" $rc 1
like "a bad run names what failed" "$out" "FAIL: t2"
: >"$here/results"
quick "$here/bin" check
is "a run of no test is no good run" "$(last) $rc" "0 passed, 0 failed, 0 skipped 1"

no_apt=
echo PASS >"$here/results"
: >"$here/absent"
quick "$here/debian:$here/bin" check
is "everything installed: apt-get is not called" "$(grep -c apt-get "$here/calls")" 0
echo iproute2 >"$here/absent"
quick "$here/debian:$here/bin" check
is "what is missing is installed" "$(grep 'apt-get.* install' "$here/calls" | sed 's/.* //')" "iproute2"
quick "$here/debian:$here/bin" /dev/null
is "what only the tests need is not installed for a run" "$(grep -c apt-get "$here/calls")" 0

quick "$here/bin" no-such-text
is "a text that is not there: status" $rc 1
like "a text that is not there: its name" "$out" "no-such-text"
: >empty
quick "$here/bin" empty
like "an empty text" "$out" "empty is empty"
quick "$here/bin" --bogus
like "an unknown option" "$out" "unknown option --bogus"
quick "$here/bin" --help
is "--help: status" $rc 0
quick "$here/bin" packages
is "packages prints each once" "$(printf '%s\n' "$out" | sort | uniq -d)" ""
like "packages prints those of the tests" "$out" "openssh-server"
finish
