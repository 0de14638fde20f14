# Builds for Docker and BuildKit what make image builds without them:
#
#     docker build --build-arg VERSION="$(git describe --tags --always)" --build-arg REVISION="$(git rev-parse HEAD)" -t docker.io/ackrail/ackrail:dev .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X github.com/ackrail/ackrail/internal/cli.version=${VERSION}" -o /out/ackrail .

# Certificate authorities and a user database, no shell.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/ackrail /usr/local/bin/ackrail
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Ackrail" \
    org.opencontainers.image.description="Webhook pipelines that ack first and work later" \
    org.opencontainers.image.source="https://github.com/ackrail/ackrail" \
    org.opencontainers.image.url="https://github.com/ackrail/ackrail" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0"
# By number, or Kubernetes could not tell that it is not root.
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/usr/local/bin/ackrail"]
