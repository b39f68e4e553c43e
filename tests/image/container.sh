#!/bin/sh
# A container's view of the machine, set up inside new mount and process namespaces:
# container.sh ROOT [SOURCE:DESTINATION:MODE...] -- COMMAND... The root is read-only, the user 65532, without capabilities.
set -eu

root=$1
shift
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
while [ "$1" != -- ]; do
    source=${1%%:*} rest=${1#*:}
    mount --bind "$source" "$root${rest%:*}"
    mount -o "remount,bind,${rest##*:}" "$root${rest%:*}"
    shift
done
shift
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs chroot --userspec=65532:65532 "$root" "$@"
