# Sourced by run: what apt installs where it is missing, by the job that needs it.
# shellcheck shell=bash

#: `program:package`, or a package that has no program of its own.
base=(curl:curl openssl:openssl)
javascript=(node:nodejs npm:npm)
# Ceph's S3 gateway, and npm to get Azure's emulator with.
stores=(ceph-mon:ceph-mon ceph:ceph-common ceph-osd:ceph-osd radosgw:radosgw "${javascript[@]}")
# Of the examples and the generated clients. Debian's own Rust, which another one may hide.
languages=("${javascript[@]}" javac:default-jdk-headless go:golang-go g++:g++ libcurl4-openssl-dev libssl-dev nlohmann-json3-dev
    php:php-cli php-curl Rscript:r-base-core r-cran-curl r-cran-jsonlite r-cran-openssl ruby:ruby cargo rust-clippy
    librust-base64-dev librust-serde-json-dev librust-sha2-dev librust-ureq-dev librust-uuid-dev)
proxies=(nginx:nginx-light haproxy:haproxy)
browser=(chromium:chromium)
# Builds the image without a container engine, and runs it on an emulated old processor.
image=(buildah:buildah debootstrap:debootstrap qemu-x86_64-static:qemu-user-static)
# Judges alerts and the dashboard.
prometheus=(prometheus:prometheus promtool:prometheus)

packages_of() {
    case $1 in
        lint) wanted=("${javascript[@]}") ;;
        test | kernels) wanted=("${base[@]}") ;;
        slow) wanted=("${base[@]}" "${stores[@]}" "${languages[@]}" "${proxies[@]}" "${browser[@]}") ;;
        campaign) wanted=("${base[@]}" "${stores[@]}" "${proxies[@]}") ;;
        image) wanted=("${base[@]}" "${javascript[@]}" "${proxies[@]}" "${image[@]}" "${prometheus[@]}") ;;
        clients) wanted=("${base[@]}" "${languages[@]}") ;;
    esac
    printf '%s\n' "${wanted[@]}"
}

install_packages() { # JOB...
    local wanted missing=() job
    for job in "$@"; do
        for wanted in $(packages_of "$job"); do
            case $wanted in
                *:*) command -v "${wanted%%:*}" >/dev/null || missing+=("${wanted#*:}") ;;
                *) dpkg -s "$wanted" >/dev/null 2>&1 || missing+=("$wanted") ;;
            esac
        done
    done
    if [ "${#missing[@]}" -gt 0 ]; then
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends ca-certificates "${missing[@]}"
    fi
}
