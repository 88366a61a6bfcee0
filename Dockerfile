# syntax=docker/dockerfile:1
# The image of wattlane: one binary on a base without a shell, as a user that is nobody.
#
#   docker build --build-arg SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) --build-arg RUST=rust:1.95-bookworm@sha256:… \
#     --build-arg BASE=gcr.io/distroless/cc-debian12:nonroot@sha256:… -t wattlane:0.1.0 .
#
# The same commit and the same two digests give the same binary: versions come from Cargo.lock, paths are mapped, nothing
# of the time or the machine goes in. `cargo auditable` puts the list of all crates into the binary, where `cargo audit
# bin`, trivy, grype and syft read it: the SBOM of the image is in the image (`syft wattlane:0.1.0 -o cyclonedx-json`).
ARG RUST=rust:1.95-bookworm
# glibc, since NVIDIA's runtime puts the host's nvidia-smi into the probe's container; Debian 12 as in the builder.
ARG BASE=gcr.io/distroless/cc-debian12:nonroot

FROM ${RUST} AS build
ARG SOURCE_DATE_EPOCH=0
ARG AUDITABLE=0.7.7
RUN cargo install cargo-auditable --version "${AUDITABLE}" --locked
WORKDIR /src
COPY Cargo.toml Cargo.lock rustfmt.toml clippy.toml ./
COPY src src
COPY loadtest loadtest
COPY README.md ARCHITECTURE.md ./
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} CARGO_INCREMENTAL=0
ENV RUSTFLAGS="--remap-path-prefix=/src=/wattlane --remap-path-prefix=/usr/local/cargo=/cargo"
RUN cargo auditable build --release --locked --package wattlane && strip --strip-debug target/release/wattlane

FROM ${BASE}
COPY --from=build --chmod=0555 /src/target/release/wattlane /usr/local/bin/wattlane
USER 65532:65532
EXPOSE 8443 8081
ENTRYPOINT ["/usr/local/bin/wattlane"]
