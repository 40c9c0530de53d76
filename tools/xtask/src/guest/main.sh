# What the guest's first process does in its new root: it runs the command, and writes the mark behind both outputs. The machine is
# ended from outside. Descriptor 7 is the port `ctl`.
b=/run/guest/busybox
. /run/guest/vars

fail() {
    echo "guest: cannot go on: $*"
    $b poweroff -f
}

$b hostname guest
$b ip link set lo up
ulimit -Hn 1048576
ulimit -Sn 1024
# The ports themselves can be opened once only; pipes before them can be opened by any process (/dev/stderr).
for name in out err; do
    $b mkfifo "/run/guest/$name"
done
exec 8<>/run/guest/out 9<>/run/guest/err
for dir in /sys/class/virtio-ports/*; do
    read -r name <"$dir/name"
    case $name in
    out | err) $b cat "/run/guest/$name" >"/dev/${dir##*/}" 7>&- 8>&- 9>&- & ;;
    esac
done
echo ready >&7
/bin/sh /run/guest/command </dev/null >&8 2>&9 7>&- 8>&- 9>&-
status=$?
$b sync
printf '\000%s%d\n' "$mark" $status >&8
printf '\000%s%d\n' "$mark" $status >&9
# Whoever started the machine ends it when both marks have arrived.
while :; do
    $b sleep 3600
done
