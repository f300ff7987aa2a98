#!/usr/bin/env bash
# A real S3 on loopback: Ceph's RADOS gateway, one monitor, one OSD, up in about 2 s.
#
#   tests/support/object_stores/ceph-rgw.sh DIR [PORT [memstore|bluestore [GIB]]]
#
# PORT (9400 if not given) is where S3 is served; the 39 ports after it are taken by the rest. DIR must be
# new, or empty; everything lies there but for the data of a memstore (the default), which lies in memory and
# may grow to GIB (4 if not given). Path style, region us-east-1, access key testkey, secret key testsecret.
# The three processes go into the background, their ids are in DIR/run/*.pid; to stop it, end those.
#
# Debian and Ubuntu: apt-get install --no-install-recommends ceph-mon ceph-mgr ceph-osd radosgw
set -euo pipefail

dir=$(mkdir -p "$1" && cd "$1" && pwd)
port=${2:-9400}
objectstore=${3:-memstore}
gib=${4:-4}

conf=$dir/ceph.conf
keyring=$dir/keyring
fsid=$(cat /proc/sys/kernel/random/uuid)
monitor="[v2:127.0.0.1:$((port + 1))/0,v1:127.0.0.1:$((port + 2))/0]"

mkdir -p "$dir"/{mon,osd,run,log,crash}
cat >"$conf" <<END
[global]
fsid = $fsid
mon host = $monitor
mon initial members = a
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind port min = $((port + 3))
ms bind port max = $((port + 39))
keyring = $keyring

# One copy of everything, in as few placement groups as there can be.
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
# A disk that is nearly full is no reason not to start.
mon data avail crit = 1
# Written at once instead of once a second: this is what makes it start in 2 s.
paxos propose interval = 0.1
client mount timeout = 30

osd objectstore = $objectstore
memstore device bytes = $((gib << 30))
bluestore block size = 8589934592
osd data = $dir/osd
mon data = $dir/mon
run dir = $dir/run
crash dir = $dir/crash
admin socket = $dir/run/\$name.asok
pid file = $dir/run/\$name.pid
log file = $dir/log/\$name.log

[client.rgw]
# Without nodelay each GET takes 40 ms: it waits for an acknowledgement.
rgw frontends = beast endpoint=127.0.0.1:$port tcp_nodelay=1
rgw enable apis = s3
# What is deleted makes room at once; by default it lies there for two hours more, and 4 GiB are soon full.
rgw gc obj min wait = 1
rgw gc processor period = 5
rgw gc processor max time = 5
END

ceph-authtool "$keyring" --create-keyring --gen-key -n mon. --cap mon 'allow *'
for name in client.admin osd.0 client.rgw; do
    ceph-authtool "$keyring" --gen-key -n "$name" --cap mon 'allow *' --cap osd 'allow *'
done
monmaptool --create --fsid "$fsid" --addv a "$monitor" "$dir/monmap"
ceph-mon -c "$conf" --mkfs -i a --monmap "$dir/monmap" --keyring "$keyring"
ceph-mon -c "$conf" -i a
osd=$(cat /proc/sys/kernel/random/uuid)
ceph -c "$conf" osd new "$osd" 0
ceph-osd -c "$conf" -i 0 --mkfs --osd-uuid "$osd"
ceph-osd -c "$conf" -i 0
timeout 60 radosgw-admin -c "$conf" -n client.rgw user create \
    --uid=test --display-name=test --access-key=testkey --secret-key=testsecret
timeout 60 radosgw -c "$conf" -n client.rgw
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 0.1; done
