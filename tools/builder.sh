# shellcheck shell=sh
# Choose what builds images: sourced by tools/image*.sh and tools/base_image.sh, which then call `images`, as they would docker.
# The first of docker, podman and buildah that works here, or the one that $BUILDER names; buildah is installed on Debian.

stop() { echo "infscale: $*" >&2; exit 1; }

# docker without its daemon, or podman without its helpers, is there and does not work.
works() { command -v "$1" >/dev/null && timeout 20 "$1" info >/dev/null 2>&1; }

choose_builder() {
    for builder in ${BUILDER:-docker podman buildah}; do
        if works "$builder"; then return; fi
    done
    [ "${BUILDER:-buildah}" = buildah ] || stop "$BUILDER is not here or does not work: see '$BUILDER info'"
    command -v apt-get >/dev/null || stop "images need docker, podman or buildah; install one of them"
    [ "$(id -u)" = 0 ] || stop "images need docker, podman or buildah; run once: sudo apt-get install -y buildah"
    echo "installing the Debian package buildah"
    tools/apt.sh buildah
    builder=buildah
    works "$builder" || stop "buildah is installed and does not work: see 'buildah info'"
}

# As root, buildah needs neither a daemon nor anything of the kernel this way, and works inside a container too.
images() {
    case $builder in
        buildah) BUILDAH_ISOLATION=chroot buildah --storage-driver vfs "$@" ;;
        *) "$builder" "$@" ;;
    esac
}

have_image() {
    case $builder in
        buildah) images inspect --type image "$1" ;;
        *) images image inspect "$1" ;;
    esac >/dev/null 2>&1
}

size_of() { images images --format '{{.Size}}' "$1" | head -n 1; }

choose_builder
