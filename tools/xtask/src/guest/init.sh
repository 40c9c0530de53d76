#!/bin/busybox sh
# The first process of the guest. It makes the root of the host's file system and a layer of memory, and runs the command there.
#
# /job/vars sets: modules (the host's folder of this kernel's modules), release (of the kernel), seen (folders below /tmp and
# /run that stay visible, one a line), write (folders that may be changed, one a line), mark (what ends an output).
# /job/command is the command as a script. Standard output and error are the console.
b=/bin/busybox

fail() {
    echo "guest: cannot go on: $*"
    $b poweroff -f
}

# Mounts of type $1 at $2, with options $3.
put() {
    $b mkdir -p "$2" && $b mount -t "$1" ${3:+-o "$3"} "$1" "$2" || fail "mount of $1 at $2"
}

# The device of the port named $1, in $port; devices come some time after their driver.
find_port() {
    local tries=0 dir name
    while [ $tries -lt 500 ]; do
        for dir in /sys/class/virtio-ports/*; do
            name=
            [ -r "$dir/name" ] && read -r name <"$dir/name"
            port=/dev/${dir##*/}
            [ "$name" = "$1" ] && [ -c "$port" ] && return
        done
        tries=$((tries + 1))
        $b usleep 20000
    done
    fail "no port $1"
}

put proc /proc
put sysfs /sys
put devtmpfs /dev
for module in /modules/*; do
    $b insmod "$module" || fail "module $module"
done
. /job/vars
find_port ctl
exec 7>"$port"
echo up >&7

nine=trans=virtio,version=9p2000.L,msize=512000
$b mkdir -p /host /layer /new
$b mount -t 9p -o "ro,cache=loose,$nine" hostroot /host || fail "the host's root"
put tmpfs /layer size=75%
$b mkdir /layer/upper /layer/work
$b mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay /new || fail "the layer"
$b mkdir -p "/new/lib/modules/$release"
$b mount --bind "/host$modules" "/new/lib/modules/$release" || fail "the modules"

# /tmp and /run are empty, but for what has to be seen.
put tmpfs /tmp mode=1777,size=75%
put tmpfs /run mode=755,size=25%
IFS='
'
for dir in $seen; do
    $b mkdir -p "$dir"
    $b mount --bind "/new$dir" "$dir" || fail "$dir"
done
$b mkdir -p /run/lock /run/guest
$b cp /bin/busybox /job/* /run/guest/
$b mkdir -p /new/tmp /new/run
$b mount --move /tmp /new/tmp
$b mount --move /run /new/run
count=0
for dir in $write; do
    $b mkdir -p "/new$dir"
    $b mount -t 9p -o "cache=mmap,$nine" "write$count" "/new$dir" || fail "$dir"
    count=$((count + 1))
done
unset IFS

$b mount --move /dev /new/dev
$b mount --move /sys /new/sys
put proc /new/proc
put devpts /new/dev/pts mode=620,ptmxmode=666
put tmpfs /new/dev/shm mode=1777
put mqueue /new/dev/mqueue
for link in fd:/proc/self/fd stdin:/proc/self/fd/0 stdout:/proc/self/fd/1 stderr:/proc/self/fd/2; do
    $b ln -sfn "${link#*:}" "/new/dev/${link%%:*}"
done
# Devices whose drivers are loaded when they are opened.
$b mkdir -p /new/dev/net
for node in net/tun:200 fuse:229 vhost-net:238; do
    [ -c "/new/dev/${node%%:*}" ] || $b mknod -m 666 "/new/dev/${node%%:*}" c 10 "${node#*:}"
done
put debugfs /new/sys/kernel/debug
put tracefs /new/sys/kernel/tracing
put bpf /new/sys/fs/bpf
put cgroup2 /new/sys/fs/cgroup
$b umount /proc
exec $b switch_root /new /run/guest/busybox sh /run/guest/main
