// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
//
// Path of first packets, reported from inside the kernel: probes of user space and hooks of the kernel
// datapath, into one ring buffer. Needs no kernel headers: the used members of kernel structures are declared
// here and relocated by CO-RE.

#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

// The helpers require a GPL-compatible licence.
char LICENSE[] SEC("license") = "GPL";

// As `upcall_events::Stage`.
enum stage {
    MISS = 1,
    ENQUEUED = 2,
    REFUSED = 3,
    RECEIVED = 4,
    TRANSLATED = 5,
    PUT_SENT = 6,
    EXECUTE_SENT = 7,
    PUT_DONE = 8,
    EXECUTED = 9,
    ON_WIRE = 10,
    STAGES = 11,
};

// As `upcall_events::Why`.
enum why { WHY_MISS = 1, WHY_ACTION = 2, WHY_UNKNOWN = 3 };

#define NO_PORT 0xffffffff
// One in this many events is timed.
#define SAMPLED 64
// A longer time means an interruption: not representative.
#define INTERRUPTED_NS 5000

// Set before loading; constants for the verifier.
const volatile struct {
    u32 packet_max;
    u32 key_max;
    // Only this process, by its id in its own PID namespace; 0: all.
    u32 only_pid;
    // Only kernel misses of datapaths in this network namespace; 0: all.
    u32 only_net;
    // That PID namespace: device and inode of /proc/PID/ns/pid.
    u64 ns_dev;
    u64 ns_ino;
} settings SEC(".rodata.settings") = {256, 64, 0, 0, 0, 0};

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4 << 20);
} events SEC(".maps");

// By stage: events that did not fit. Slot 0: nanoseconds spent.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, STAGES);
    __type(key, u32);
    __type(value, u64);
} lost SEC(".maps");

// Header of every record; the packet (packet_max bytes) and the key (key_max bytes) follow if present.
struct head {
    u64 time_ns;
    u64 upcall;
    u32 thread;
    u32 port;
    u32 packet_bytes;
    u32 error;
    u16 cpu;
    u16 batch;
    u16 packet_held;
    u16 key_held;
    u8 stage;
    u8 why;
    // Object of the name.
    u8 named;
    u8 pad[5];
    char name[16];
};

// As record.rs reads `named`.
enum named { NAMED_THREAD = 0, NAMED_PORT = 1 };

#define NAME_BYTES 16
_Static_assert(sizeof(struct head) == 64, "as record.rs reads it");

// Addresses at the beginning of a frame, and the tag after them.
#define ADDRESS_BYTES 12
#define TAG_BYTES 4

struct report {
    enum stage stage;
    u64 why;
    u64 time_ns;
    u64 upcall;
    u64 port;
    u64 packet;
    u64 packet_bytes;
    // Number of readable bytes at that address, in the kernel.
    u64 linear_bytes;
    u64 key;
    u64 key_bytes;
    u64 batch;
    u64 error;
    // The name of the port's device, in the kernel.
    u64 device;
    // A tag stripped from the packet, in its form in the frame.
    u8 tag[TAG_BYTES];
    bool tagged;
    bool kernel;
};

static __always_inline void count(u32 place, u64 by) {
    u64 *value = bpf_map_lookup_elem(&lost, &place);
    if (value)
        __sync_fetch_and_add(value, by);
}

// The current task in its own PID namespace, process above thread; outside of the wanted namespace, in the
// initial one, without a process.
static __always_inline u64 current_task(void) {
    struct bpf_pidns_info own = {};
    if (!settings.only_pid)
        return bpf_get_current_pid_tgid();
    if (bpf_get_ns_current_pid_tgid(settings.ns_dev, settings.ns_ino, &own, sizeof(own)))
        return (u32)bpf_get_current_pid_tgid();
    return (u64)own.tgid << 32 | own.pid;
}

static __always_inline void fill(struct head *head, const struct report *t, u64 now_ns, u64 task) {
    head->time_ns = t->time_ns ? t->time_ns : now_ns;
    head->upcall = t->upcall;
    head->thread = (u32)task;
    head->port = t->port;
    head->packet_bytes = t->packet_bytes;
    head->error = t->error;
    head->cpu = bpf_get_smp_processor_id();
    head->batch = t->batch;
    head->packet_held = 0;
    head->key_held = 0;
    head->stage = t->stage;
    head->why = t->why;
    head->named = t->device ? NAMED_PORT : NAMED_THREAD;
    if (t->device)
        bpf_probe_read_kernel_str(head->name, sizeof(head->name), (void *)t->device);
    else
        bpf_get_current_comm(head->name, sizeof(head->name));
}

// Copies from user space or the kernel; returns the number of bytes.
static __always_inline u16 copy(void *to, u32 max, u64 from, u64 bytes, bool kernel) {
    u32 held = bytes < max ? bytes : max;
    if (held > max)
        return 0;
    long failed = kernel ? bpf_probe_read_kernel(to, held, (void *)from) : bpf_probe_read_user(to, held, (void *)from);
    return failed ? 0 : held;
}

// Copies a kernel frame with its tag, in the form seen by user space; returns the number of bytes. `max` is
// at least twice that of both.
static __always_inline u16 copy_tagged(u8 *to, u32 max, const struct report *t) {
    u32 room = max - ADDRESS_BYTES - TAG_BYTES;
    if (t->linear_bytes < ADDRESS_BYTES)
        return 0;
    u32 held = copy(to + ADDRESS_BYTES + TAG_BYTES, room, t->packet + ADDRESS_BYTES, t->linear_bytes - ADDRESS_BYTES, true);
    if (bpf_probe_read_kernel(to, ADDRESS_BYTES, (void *)t->packet))
        return 0;
    __builtin_memcpy(to + ADDRESS_BYTES, t->tag, TAG_BYTES);
    return ADDRESS_BYTES + TAG_BYTES + held;
}

static __always_inline int send_event(const struct report *t) {
    u64 now_ns = bpf_ktime_get_ns();
    // The kernel datapath runs in the context of an arbitrary task.
    bool anybody = t->kernel && t->stage == MISS;
    u64 task = current_task();
    if (!anybody && settings.only_pid && task >> 32 != settings.only_pid)
        return 0;
    if (!t->packet && !t->key) {
        struct head *head = bpf_ringbuf_reserve(&events, sizeof(*head), 0);
        if (!head) {
            count(t->stage, 1);
            return 0;
        }
        fill(head, t, now_ns, task);
        bpf_ringbuf_submit(head, BPF_RB_NO_WAKEUP);
    } else {
        struct head *head = bpf_ringbuf_reserve(&events, sizeof(*head) + settings.packet_max + settings.key_max, 0);
        if (!head) {
            count(t->stage, 1);
            return 0;
        }
        fill(head, t, now_ns, task);
        u8 *data = (u8 *)(head + 1);
        if (t->tagged)
            head->packet_held = copy_tagged(data, settings.packet_max, t);
        else if (t->packet)
            head->packet_held = copy(data, settings.packet_max, t->packet, t->kernel ? t->linear_bytes : t->packet_bytes, t->kernel);
        if (t->key)
            head->key_held = copy(data + settings.packet_max, settings.key_max, t->key, t->key_bytes, t->kernel);
        bpf_ringbuf_submit(head, BPF_RB_NO_WAKEUP);
    }
    if (now_ns / 16 % SAMPLED == 0) {
        u64 ns = bpf_ktime_get_ns() - now_ns;
        count(0, ns < INTERRUPTED_NS ? ns * SAMPLED : ns);
    }
    return 0;
}

#define WHY(number) ((number) ? WHY_ACTION : WHY_MISS)
#define REPORT(...) send_event(&(struct report){__VA_ARGS__})

SEC("usdt")
int BPF_USDT(miss, u64 upcall, u64 port, u64 packet, u64 bytes, u64 why) {
    return REPORT(.stage = MISS, .why = WHY(why), .upcall = upcall, .port = port, .packet = packet, .packet_bytes = bytes);
}

SEC("usdt")
int BPF_USDT(enqueued, u64 upcall, u64 port, u64 bytes, u64 why, u64 time_ns, u64 packet) {
    return REPORT(.stage = ENQUEUED, .why = WHY(why), .time_ns = time_ns, .upcall = upcall, .port = port, .packet = packet,
                .packet_bytes = bytes);
}

SEC("usdt")
int BPF_USDT(refused, u64 upcall, u64 port, u64 bytes, u64 why, u64 time_ns, u64 packet) {
    // ENOBUFS
    return REPORT(.stage = REFUSED, .why = WHY(why), .time_ns = time_ns, .upcall = upcall, .port = port, .packet = packet,
                .packet_bytes = bytes, .error = 105);
}

SEC("usdt")
int BPF_USDT(received, u64 upcall, u64 port, u64 packet, u64 bytes, u64 why, u64 batch, u64 key, u64 key_bytes) {
    return REPORT(.stage = RECEIVED, .why = WHY(why), .upcall = upcall, .port = port, .packet = packet, .packet_bytes = bytes,
                .batch = batch, .key = key, .key_bytes = key_bytes);
}

SEC("usdt")
int BPF_USDT(translated, u64 upcall, u64 port, u64 packet, u64 bytes, u64 why) {
    return REPORT(.stage = TRANSLATED, .why = WHY(why), .upcall = upcall, .port = port, .packet_bytes = bytes);
}

SEC("usdt")
int BPF_USDT(put_sent, u64 upcall, u64 port) {
    return REPORT(.stage = PUT_SENT, .why = WHY_MISS, .upcall = upcall, .port = port);
}

SEC("usdt")
int BPF_USDT(execute_sent, u64 upcall, u64 port, u64 packet, u64 bytes) {
    return REPORT(.stage = EXECUTE_SENT, .why = WHY_UNKNOWN, .upcall = upcall, .port = port, .packet = packet, .packet_bytes = bytes);
}

SEC("usdt")
int BPF_USDT(put_done, u64 upcall, u64 port, u64 error) {
    return REPORT(.stage = PUT_DONE, .why = WHY_MISS, .upcall = upcall, .port = port, .error = error);
}

SEC("usdt")
int BPF_USDT(executed, u64 upcall, u64 port, u64 packet, u64 bytes) {
    return REPORT(.stage = EXECUTED, .why = WHY_UNKNOWN, .upcall = upcall, .port = port, .packet = packet, .packet_bytes = bytes);
}

SEC("usdt")
int BPF_USDT(on_wire, u64 upcall, u64 port, u64 bytes) {
    return REPORT(.stage = ON_WIRE, .why = WHY_UNKNOWN, .upcall = upcall, .port = port, .packet_bytes = bytes);
}

// Cost of entering a program, measured by the tracer on itself.
SEC("usdt")
int BPF_USDT(calibrate) {
    return 0;
}

// A stock ovs-vswitchd.

SEC("usdt")
int BPF_USDT(stock_received, u64 datapath, u64 type, u64 packet, u64 bytes, u64 key, u64 key_bytes) {
    return REPORT(.stage = RECEIVED, .why = WHY(type), .port = NO_PORT, .packet = packet, .packet_bytes = bytes, .key = key,
                .key_bytes = key_bytes);
}

// How its struct dpif_flow_put begins.
struct stock_put {
    u32 flags;
    u64 key;
    u64 key_bytes;
};

SEC("usdt")
int BPF_USDT(stock_put_sent, u64 dpif, u64 put_address) {
    struct stock_put put = {};
    bpf_probe_read_user(&put, sizeof(put), (void *)put_address);
    return REPORT(.stage = PUT_SENT, .why = WHY_MISS, .port = NO_PORT, .key = put.key, .key_bytes = put.key_bytes);
}

SEC("usdt")
int BPF_USDT(stock_execute_sent, u64 dpif, u64 execute, u64 packet, u64 bytes) {
    return REPORT(.stage = EXECUTE_SENT, .why = WHY_UNKNOWN, .port = NO_PORT, .packet = packet, .packet_bytes = bytes);
}

// The kernel's datapath.

struct net_device {
    char name[NAME_BYTES];
} __attribute__((preserve_access_index));

struct sk_buff {
    struct net_device *dev;
    unsigned int len;
    unsigned int data_len;
    unsigned char *data;
    u16 vlan_proto;
    u16 vlan_tci;
    // Since Linux 6.2 a tag is present if vlan_proto is not 0.
    u8 vlan_present : 1;
} __attribute__((preserve_access_index));

struct ns_common {
    unsigned int inum;
} __attribute__((preserve_access_index));

struct net {
    struct ns_common ns;
} __attribute__((preserve_access_index));

// Types of the module.

struct net_pointer {
    struct net *net;
} __attribute__((preserve_access_index));

struct datapath {
    struct net_pointer net;
} __attribute__((preserve_access_index));

struct flow_key_phy {
    u16 in_port;
} __attribute__((preserve_access_index));

struct sw_flow_key {
    struct flow_key_phy phy;
} __attribute__((preserve_access_index));

struct dp_upcall_info {
    u8 cmd;
} __attribute__((preserve_access_index));

// OVS_PACKET_CMD_*
#define CMD_MISS 1
#define CMD_ACTION 2
// The packet came by no port.
#define IN_PORT_NONE 0xffff

struct genl_info {
    struct nlattr **attrs;
} __attribute__((preserve_access_index));

struct nlattr {
    u16 nla_len;
    u16 nla_type;
} __attribute__((preserve_access_index));

// OVS_PACKET_ATTR_*
#define PACKET_ATTR 1
#define KEY_ATTR 2
#define ATTR_HEADER_BYTES 4

// The tag that the device stripped from the frame, if any; user space gets the frame with it.
static __always_inline void tag_of(struct sk_buff *skb, struct report *t) {
    u16 type = BPF_CORE_READ(skb, vlan_proto), tci = BPF_CORE_READ(skb, vlan_tci);
    if (bpf_core_field_exists(skb->vlan_present))
        t->tagged = BPF_CORE_READ_BITFIELD_PROBED(skb, vlan_present);
    else
        t->tagged = type != 0;
    if (!t->tagged)
        return;
    t->tag[0] = (u8)type;
    t->tag[1] = type >> 8;
    t->tag[2] = tci >> 8;
    t->tag[3] = (u8)tci;
    t->packet_bytes += TAG_BYTES;
}

// trace_ovs_dp_upcall(datapath, skb, key, upcall_info)
SEC("raw_tp/ovs_dp_upcall")
int kernel_miss(struct bpf_raw_tracepoint_args *ctx) {
    struct datapath *datapath = (struct datapath *)ctx->args[0];
    struct sk_buff *skb = (struct sk_buff *)ctx->args[1];
    struct sw_flow_key *key = (struct sw_flow_key *)ctx->args[2];
    struct dp_upcall_info *info = (struct dp_upcall_info *)ctx->args[3];
    // A kernel without type information of its modules reports less.
    if (settings.only_net && bpf_core_field_exists(datapath->net) &&
        BPF_CORE_READ(datapath, net.net, ns.inum) != settings.only_net)
        return 0;
    struct report t = {.stage = MISS, .why = WHY_UNKNOWN, .port = NO_PORT, .kernel = true};
    t.packet = (u64)BPF_CORE_READ(skb, data);
    t.packet_bytes = BPF_CORE_READ(skb, len);
    t.linear_bytes = t.packet_bytes - BPF_CORE_READ(skb, data_len);
    tag_of(skb, &t);
    if (bpf_core_field_exists(info->cmd)) {
        u8 cmd = BPF_CORE_READ(info, cmd);
        t.why = cmd == CMD_MISS ? WHY_MISS : cmd == CMD_ACTION ? WHY_ACTION : WHY_UNKNOWN;
    }
    if (bpf_core_field_exists(key->phy.in_port)) {
        u16 port = BPF_CORE_READ(key, phy.in_port);
        struct net_device *dev = BPF_CORE_READ(skb, dev);
        if (port != IN_PORT_NONE)
            t.port = port;
        // Actions may have changed the device.
        if (port != IN_PORT_NONE && t.why == WHY_MISS && dev)
            t.device = (u64)dev + bpf_core_field_offset(dev->name);
    }
    return send_event(&t);
}

// ovs_packet_cmd_execute(skb, info)
SEC("kprobe/ovs_packet_cmd_execute")
int BPF_KPROBE(kernel_executed, void *skb, struct genl_info *info) {
    struct nlattr **attrs = BPF_CORE_READ(info, attrs);
    struct nlattr *packet = NULL, *key = NULL;
    bpf_probe_read_kernel(&packet, sizeof(packet), attrs + PACKET_ATTR);
    bpf_probe_read_kernel(&key, sizeof(key), attrs + KEY_ATTR);
    if (!packet)
        return 0;
    u64 bytes = BPF_CORE_READ(packet, nla_len) - ATTR_HEADER_BYTES;
    struct report t = {.stage = EXECUTED, .why = WHY_UNKNOWN, .port = NO_PORT, .kernel = true};
    t.packet = (u64)packet + ATTR_HEADER_BYTES;
    t.packet_bytes = bytes;
    t.linear_bytes = bytes;
    if (key) {
        t.key = (u64)key + ATTR_HEADER_BYTES;
        t.key_bytes = BPF_CORE_READ(key, nla_len) - ATTR_HEADER_BYTES;
    }
    return send_event(&t);
}
