#!/bin/sh
# Fetches into .clients/ what tests need of clients in other languages, as far as this machine and
# its registries allow; what cannot be had is named, and its tests are skipped.
cd "$(dirname "$0")/../.." || exit 1
mkdir -p .clients/node .clients/go .clients/go-share .clients/java .clients/streams .clients/streams-3 .clients/tools
log=.clients/log
: > "$log"

try() { # what it is for, command …
  what=$1
  shift
  if "$@" >> "$log" 2>&1; then echo "$what: there"; else echo "$what: not to be had (see $log)"; fi
}

node() {
  test -d .clients/node/node_modules/@platformatic/kafka ||
    npm install --silent --no-save --fetch-retries 1 --fetch-timeout 60000 --prefix .clients/node kafkajs@2.2.4 @platformatic/kafka@1.35.0
}

go_module() {
  test -f .clients/go/go.sum && return
  (
    cd .clients/go || exit 1
    test -f go.mod || go mod init orders || exit 1
    if ! go get github.com/twmb/franz-go/pkg/kgo@v1.15.4; then
      rm -f go.mod go.sum
      exit 1
    fi
  )
}

go_share() {
  test -x .clients/go-share/share_worker && return
  cp tests/clients/share_worker.go .clients/go-share/
  (
    cd .clients/go-share || exit 1
    test -f go.mod || go mod init shareworker || exit 1
    go get github.com/twmb/franz-go/pkg/kgo@v1.21.5 && go build -o share_worker .
  )
}

java() {
  ls .clients/java/*.jar && return
  mvn --batch-mode --quiet dependency:copy-dependencies -f tests/clients/java-client.xml \
    -DoutputDirectory="$PWD/.clients/java"
}

streams() {
  ls .clients/streams/*.jar && return
  mvn --batch-mode --quiet dependency:copy-dependencies -f tests/clients/java-streams.xml \
    -DoutputDirectory="$PWD/.clients/streams"
}

streams_3() {
  ls .clients/streams-3/*.jar && return
  mvn --batch-mode --quiet dependency:copy-dependencies -f tests/clients/java-streams.xml \
    -Dstreams.version=3.9.1 -DoutputDirectory="$PWD/.clients/streams-3"
}

tools() {
  ls .clients/tools/*.jar && return
  mvn --batch-mode --quiet dependency:copy-dependencies -f tests/clients/java-tools.xml \
    -DoutputDirectory="$PWD/.clients/tools"
}

c() {
  pkg-config --exists rdkafka && return
  test "$(id -u)" = 0 || return
  apt-get install --yes --quiet librdkafka-dev pkg-config && return
  apt-get update --quiet && apt-get install --yes --quiet librdkafka-dev pkg-config
}

try "kafkajs and @platformatic/kafka (Node)" node
try "franz-go (Go)" go_module
try "franz-go's share consumer (Go 1.25)" go_share
try "kafka-clients (Java)" java
try "kafka-streams (Java)" streams
try "kafka-streams 3 (Java)" streams_3
try "kafka-tools (Java)" tools
try "librdkafka (C)" c
