#!/bin/bash
# A Slurm cluster of one node on this machine, from Debian's packages, for tests: start, stop or status.
#
#   sudo tools/slurm_node.sh install   # packages: slurmctld, slurmd, slurm-client, munge
#   sudo tools/slurm_node.sh start
#   sinfo                              # one idle node
#   sudo tools/slurm_node.sh stop
#
# Its files are in SLURM_NODE_DIR (/var/tmp/slurm-node). The daemons need root.
set -euo pipefail

DIR=${SLURM_NODE_DIR:-/var/tmp/slurm-node}
HOST=$(hostname -s)
CONF=$DIR/slurm.conf

need_root() {
    [ "$(id -u)" = 0 ] || { echo "slurm_node: run as root" >&2; exit 2; }
}

install() {
    need_root
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        slurmctld slurmd slurm-client munge
}

write_conf() {
    local cpus memory
    cpus=$(nproc)
    memory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.8)}' /proc/meminfo)
    cat > "$CONF" <<CONF
ClusterName=homing-test
SlurmctldHost=$HOST(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$DIR/munge.socket
StateSaveLocation=$DIR/state
SlurmdSpoolDir=$DIR/spool
SlurmctldPidFile=$DIR/slurmctld.pid
SlurmdPidFile=$DIR/slurmd.pid
SlurmctldLogFile=$DIR/slurmctld.log
SlurmdLogFile=$DIR/slurmd.log
# Without cgroups, which containers do not provide.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,requeue_delay=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=10
MinJobAge=300
JobRequeue=1
NodeName=$HOST NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=$memory State=UNKNOWN
PartitionName=test Nodes=$HOST Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
CONF
    mkdir -p /etc/slurm
    if [ -e /etc/slurm/slurm.conf ] && [ "$(readlink /etc/slurm/slurm.conf)" != "$CONF" ]; then
        echo "slurm_node: /etc/slurm/slurm.conf belongs to another cluster and is not changed" >&2
        exit 2
    fi
    ln -sfn "$CONF" /etc/slurm/slurm.conf
}

start_munge() {
    [ -e "$DIR/munge.key" ] || dd if=/dev/urandom of="$DIR/munge.key" bs=1024 count=1 status=none
    chmod 600 "$DIR/munge.key"
    [ -S "$DIR/munge.socket" ] && munge -n -S "$DIR/munge.socket" > /dev/null 2>&1 && return
    munged --force --key-file="$DIR/munge.key" --socket="$DIR/munge.socket" \
        --pid-file="$DIR/munge.pid" --log-file="$DIR/munged.log" --seed-file="$DIR/munge.seed"
}

start() {
    need_root
    for program in slurmctld slurmd munged; do
        command -v $program > /dev/null || { echo "slurm_node: no $program; first: $0 install" >&2; exit 2; }
    done
    mkdir -p "$DIR/state" "$DIR/spool"
    chmod 755 "$DIR"
    write_conf
    start_munge
    pgrep -F "$DIR/slurmctld.pid" > /dev/null 2>&1 || slurmctld -f "$CONF"
    pgrep -F "$DIR/slurmd.pid" > /dev/null 2>&1 || slurmd -f "$CONF"
    for _ in $(seq 60); do
        sinfo -h -o %T 2> /dev/null | grep -Eq '^(idle|mixed|allocated)' && { sinfo; return; }
        scontrol update nodename="$HOST" state=resume 2> /dev/null || true
        sleep 1
    done
    echo "slurm_node: the node does not come up; see $DIR/*.log" >&2
    exit 1
}

stop() {
    need_root
    for daemon in slurmd slurmctld munge; do
        if [ -e "$DIR/$daemon.pid" ]; then
            pid=$(cat "$DIR/$daemon.pid")
            kill "$pid" 2> /dev/null || true
            for _ in $(seq 100); do  # wait until it has written its state
                kill -0 "$pid" 2> /dev/null || break
                sleep 0.1
            done
        fi
    done
    if [ "$(readlink /etc/slurm/slurm.conf 2> /dev/null)" = "$CONF" ]; then
        rm -f /etc/slurm/slurm.conf
    fi
    rm -rf "$DIR"
}

case ${1:-} in
    install) install ;;
    start) start ;;
    stop) stop ;;
    status) sinfo && squeue ;;
    *) echo "usage: $0 install|start|stop|status" >&2; exit 2 ;;
esac
