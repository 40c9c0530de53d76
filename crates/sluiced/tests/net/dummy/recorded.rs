//! Output of the stock switch (3.5.4; the last ones: 3.1.0), dummy datapath, stopped clock.

/// `dpif/show`.
pub(super) const DPIF_SHOW: &str = "\
dummy@ovs-dummy: hit:0 missed:0
  br0:
    br0 65534/100: (dummy-internal)
    p1 1/1: (dummy)
    p2 2/2: (dummy)
    p7 3/7: (dummy)
";

/// `dpctl/show`.
pub(super) const DPCTL_SHOW: &str = "\
dummy@ovs-dummy:
  lookups: hit:0 missed:0 lost:0
  flows: 0
  port 0: ovs-dummy (dummy-internal)
  port 1: p1 (dummy)
  port 2: p2 (dummy)
  port 7: p7 (dummy)
  port 100: br0 (dummy-internal)
";

/// `ofproto/trace br0 …`.
pub(super) const TRACE_BRIDGE: &str = "\
Flow: tcp,in_port=1,vlan_tci=0x0000,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_src=10.1.2.3,nw_dst=192.168.0.1,nw_tos=0,nw_ecn=0,nw_ttl=64,nw_frag=no,tp_src=1234,tp_dst=80,tcp_flags=0

bridge(\"br0\")
-------------
 0. tcp,tp_dst=80, priority 50
    load:0x5->NXM_NX_REG1[]
    resubmit(,3)
 3. tcp,reg1=0x5,nw_src=10.0.0.0/8, priority 32768
    dec_ttl
    mod_dl_dst:aa:bb:cc:dd:ee:ff
    output:2

Final flow: tcp,reg1=0x5,in_port=1,vlan_tci=0x0000,dl_src=50:54:00:00:00:05,dl_dst=aa:bb:cc:dd:ee:ff,nw_src=10.1.2.3,nw_dst=192.168.0.1,nw_tos=0,nw_ecn=0,nw_ttl=63,nw_frag=no,tp_src=1234,tp_dst=80,tcp_flags=0
Megaflow: recirc_id=0,eth,tcp,in_port=1,dl_dst=50:54:00:00:00:07,nw_src=10.0.0.0/8,nw_ttl=64,nw_frag=no,tp_dst=80
Datapath actions: set(eth(dst=aa:bb:cc:dd:ee:ff)),set(ipv4(ttl=63)),2
";

/// `ofproto/trace ovs-dummy …`.
pub(super) const TRACE_DATAPATH: &str = "\
Flow: icmp,in_port=1,vlan_tci=0x0000,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_src=192.168.0.1,nw_dst=192.168.0.2,nw_tos=0,nw_ecn=0,nw_ttl=64,nw_frag=no,icmp_type=8,icmp_code=0

bridge(\"br0\")
-------------
 0. priority 0
    NORMAL
     -> no learned MAC for destination, flooding

Final flow: unchanged
Megaflow: recirc_id=0,eth,icmp,in_port=1,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,nw_frag=no
Datapath actions: 100,2
";

/// `dpctl/dump-flows`.
pub(super) const DUMP_FLOWS: &str = "\
flow-dump from the main thread:
recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=10.1.2.3/255.0.0.0,proto=6,ttl=64,frag=no),tcp(dst=80), packets:1, bytes:54, used:1.000s, flags:S, actions:set(eth(dst=aa:bb:cc:dd:ee:ff)),set(ipv4(ttl=63)),2
recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0806), packets:0, bytes:0, used:never, actions:100,2
";

/// `dpctl/dump-flows -m`, without parts specific to the stock switch (names of flows, its layout of masks).
pub(super) const DUMP_FLOWS_MORE: [&str; 2] = [
    "recirc_id(0),dp_hash(0/0),skb_priority(0/0),in_port(p1),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05/00:00:00:00:00:00,dst=50:54:00:00:00:07),eth_type(0x0800),ipv4(src=10.1.2.3/255.0.0.0,dst=192.168.0.2/0.0.0.0,proto=6,tos=0/0,ttl=64,frag=no),tcp(src=1234/0,dst=80),tcp_flags(0/0), packets:1, bytes:54, used:1.000s, flags:S, dp:ovs, actions:set(eth(dst=aa:bb:cc:dd:ee:ff)),set(ipv4(ttl=63)),p2",
    "recirc_id(0),dp_hash(0/0),skb_priority(0/0),in_port(p1),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0806),arp(sip=10.0.0.1/0.0.0.0,tip=10.0.0.2/0.0.0.0,op=1/0,sha=50:54:00:00:00:05/00:00:00:00:00:00,tha=00:00:00:00:00:00/00:00:00:00:00:00), packets:0, bytes:0, used:never, dp:ovs, actions:br0,p2",
];

/// `fdb/show br0`.
pub(super) const FDB_SHOW: &str = " port  VLAN  MAC                Age
    1     0  50:54:00:00:00:05    1
";

/// `fdb/stats-show br0`.
pub(super) const FDB_STATS: &str = "\
Statistics for bridge \"br0\":
  Current/maximum MAC entries in the table: 1/8192
  Current static MAC entries in the table : 0
  Total number of learned MAC entries     : 1
  Total number of expired MAC entries     : 0
  Total number of evicted MAC entries     : 0
  Total number of port moved MAC entries  : 0
";

/// `dpif-netdev/pmd-stats-show`.
pub(super) const PMD_STATS: &str = "\
main thread:
  packets received: 3
  packet recirculations: 0
  avg. datapath passes per packet: 1.00
  phwol hits: 0
  mfex opt hits: 0
  simple match hits: 0
  emc hits: 0
  smc hits: 0
  megaflow hits: 1
  avg. subtable lookups per megaflow hit: 1.00
  miss with success upcall: 2
  miss with failed upcall: 0
  avg. packets per output batch: 1.00
";

/// `ovs-ofctl show br0`.
pub(super) const OFCTL_SHOW: &str = "\
OFPT_FEATURES_REPLY (xid=0x2): dpid:fedcba9876543210
n_tables:254, n_buffers:0
capabilities: FLOW_STATS TABLE_STATS PORT_STATS QUEUE_STATS ARP_MATCH_IP
actions: output enqueue set_vlan_vid set_vlan_pcp strip_vlan mod_dl_src mod_dl_dst mod_nw_src mod_nw_dst mod_nw_tos mod_tp_src mod_tp_dst
 1(p1): addr:aa:55:aa:55:00:01
     config:     0
     state:      0
     speed: 0 Mbps now, 0 Mbps max
 2(p2): addr:aa:55:aa:55:00:02
     config:     0
     state:      0
     speed: 0 Mbps now, 0 Mbps max
 3(p7): addr:aa:55:aa:55:00:04
     config:     0
     state:      0
     speed: 0 Mbps now, 0 Mbps max
 LOCAL(br0): addr:aa:55:aa:55:00:00
     config:     0
     state:      0
     speed: 0 Mbps now, 0 Mbps max
OFPT_GET_CONFIG_REPLY (xid=0x4): frags=normal miss_send_len=0
";

/// `ovs-ofctl dump-flows br0`.
pub(super) const OFCTL_DUMP_FLOWS: &str = "\
NXST_FLOW reply (xid=0x4):
 cookie=0x0, duration=1s, table=0, n_packets=2, n_bytes=108, idle_age=1, priority=50,tcp,tp_dst=80 actions=load:0x5->NXM_NX_REG1[],resubmit(,3)
 cookie=0x0, duration=1s, table=0, n_packets=1, n_bytes=42, idle_age=1, priority=0 actions=NORMAL
 cookie=0x0, duration=1s, table=3, n_packets=2, n_bytes=108, idle_age=1, tcp,reg1=0x5,nw_src=10.0.0.0/8 actions=dec_ttl,mod_dl_dst:aa:bb:cc:dd:ee:ff,output:2
";

/// `bridge/dump-flows br0`, without the stock switch's internal flows in table 254.
pub(super) const BRIDGE_DUMP_FLOWS: &str = "\
duration=1s, n_packets=2, n_bytes=108, priority=50,tcp,tp_dst=80,actions=load:0x5->NXM_NX_REG1[],resubmit(,3)
duration=1s, n_packets=1, n_bytes=42, priority=0,actions=NORMAL
table_id=3, duration=1s, n_packets=2, n_bytes=108, tcp,reg1=0x5,nw_src=10.0.0.0/8,actions=dec_ttl,mod_dl_dst:aa:bb:cc:dd:ee:ff,output:2
";

/// `dpif/show` of a switch with `--enable-dummy=override`.
pub(super) const OVERRIDE_DPIF_SHOW: &str = "\
netdev@ovs-netdev: hit:0 missed:0
  br1:
    br1 65534/101: (dummy-internal)
    q1 1/1: (system)
system@ovs-system: hit:0 missed:0
  br0:
    br0 65534/100: (dummy-internal)
    p1 1/1: (system)
    t1 2/2: (tap)
";

/// `dpctl/show` of the same.
pub(super) const OVERRIDE_DPCTL_SHOW: &str = "\
netdev@ovs-netdev:
  lookups: hit:0 missed:0 lost:0
  flows: 0
  port 0: ovs-netdev (dummy-internal)
  port 1: q1
  port 101: br1 (dummy-internal)
system@ovs-system:
  lookups: hit:0 missed:0 lost:0
  flows: 0
  port 0: ovs-system (dummy-internal)
  port 1: p1
  port 2: t1 (tap)
  port 100: br0 (dummy-internal)
";

/// `dpif-netdev/pmd-perf-show`, no metrics, no packets. That switch assumed a processor of 1 Hz.
pub(super) const PERF_SHOW_OFF: &str = "\
\n\
Time: 21:02:41.580
Measurement duration: 0.055 s

pmd thread numa_id 0 core_id 1:

  Iterations:                 5814  (8850634502.92 us/it)
  - Used TSC cycles:      51457589  (93559252727.3 % of total cycles)
  - idle iterations:          5814  (100.0 % of used cycles)
  - busy iterations:             0  (  0.0 % of used cycles)
  - sleep iterations:            0  (  0.0 % of iterations)
  Sleep time (us):               0  (  0 us/iteration avg.)
  Rx packets:                    0
  Tx packets:                    0

";

/// `dpif-netdev/pmd-perf-show -nh -it 1 -ms 1`, with metrics and packets.
pub(super) const PERF_SHOW_ON: &str = "\
\n\
Time: 21:02:43.704
Measurement duration: 2.180 s

pmd thread numa_id 0 core_id 1:

  Iterations:              1033918  (5266277481.39 us/it)
  - Used TSC cycles:    5444899081  (249766012889.9 % of total cycles)
  - idle iterations:       1033913  (100.0 % of used cycles)
  - busy iterations:             5  (  0.0 % of used cycles)
  - sleep iterations:            0  (  0.0 % of iterations)
  Sleep time (us):               0  (  0 us/iteration avg.)
  Rx packets:                    5  (0 Kpps, 126084 cycles/pkt)
  Datapath passes:               5  (1.00 passes/pkt)
  - PHWOL hits:                  0  (  0.0 %)
  - MFEX Opt hits:               0  (  0.0 %)
  - Simple Match hits:           0  (  0.0 %)
  - EMC hits:                    0  (  0.0 %)
  - SMC hits:                    0  (  0.0 %)
  - Megaflow hits:               4  ( 80.0 %, 1.00 subtbl lookups/hit)
  - Upcalls:                     1  ( 20.0 %, 287820000000.0 us/upcall)
  - Lost upcalls:                0  (  0.0 %)
  Tx packets:                   10  (0 Kpps)
  Tx batches:                   10  (1.00 pkts/batch)

   iter                cycles       packets      cycles/pkt   pkts/batch   vhost qlen   upcalls      cycles/upcall
   1033921             6786         0            0            0            0            0            0          

   ms             iterations   cycles/it    Kpps         cycles/pkt   pkts/batch   vhost qlen   upcalls      cycles/upcall
   362174         157          6099         0            0            0            0            0            0          
";

/// The histograms of `dpif-netdev/pmd-perf-show`.
pub(super) const PERF_HISTOGRAMS: &str = "\
Histograms
   cycles/it              packets/it             cycles/pkt             pkts/batch             max vhost qlen         upcalls/it             cycles/upcall        
   499       0            0         97235618     100       0            0         0            0         97235618     0         97235618     999       0          
   716       0            1         0            1096      0            1         0            1         0            1         0            1258      0          
   1025      0            2         0            2093      0            2         0            2         0            2         0            1584      0          
   1469      0            3         0            3090      0            3         0            3         0            3         0            1995      0          
   2104      0            4         0            4086      0            4         0            4         0            4         0            2511      0          
   3014      0            5         0            5083      0            5         0            5         0            5         0            3162      0          
   4317      18629792     6         0            6080      0            6         0            6         0            6         0            3981      0          
   6183      75638824     7         0            7076      0            7         0            7         0            7         0            5011      0          
   8857      2614961      8         0            8073      0            8         0            8         0            8         0            6309      0          
   12686     121847       9         0            9070      0            9         0            9         0            9         0            7943      0          
   18171     53674        10        0            10066     0            10        0            10        0            10        0            9999      0          
   26027     9024         11        0            11063     0            11        0            11        0            11        0            12589     0          
   37279     6097         13        0            12060     0            12        0            12        0            12        0            15848     0          
   53395     30157        17        0            13056     0            13        0            13        0            13        0            19952     0          
   76480     53585        22        0            14053     0            14        0            16        0            14        0            25118     0          
   109544    32072        28        0            15050     0            16        0            20        0            15        0            31622     0          
   156903    16335        35        0            16046     0            17        0            25        0            16        0            39810     0          
   224736    8132         45        0            17043     0            18        0            31        0            17        0            50118     0          
   321895    3134         57        0            18040     0            19        0            38        0            18        0            63095     0          
   461058    1664         72        0            19036     0            20        0            48        0            19        0            79432     0          
   660385    860          92        0            20033     0            21        0            59        0            20        0            99999     0          
   945886    590          117       0            21030     0            22        0            73        0            21        0            125892    0          
   1354815   506          148       0            22026     0            23        0            91        0            22        0            158489    0          
   1940535   444          188       0            23023     0            24        0            113       0            23        0            199526    0          
   2779476   387          239       0            24020     0            25        0            140       0            24        0            251188    0          
   3981111   1336         303       0            25016     0            26        0            174       0            25        0            316227    0          
   5702243   4390         385       0            26013     0            27        0            216       0            26        0            398107    0          
   8167461   3491         489       0            27010     0            28        0            268       0            27        0            501187    0          
   11698454  2490         621       0            28006     0            29        0            332       0            28        0            630957    0          
   16755981  1813         788       0            29003     0            30        0            412       0            29        0            794328    0          
   24000000  8            1000      0            30000     0            32        0            512       0            30        0            1000000   0          
   >         5            >         0            >         0            >         0            >         0            >         0            >         0          
----------------------------------------------------------------------------------------------------------------------------------------------------------
   cycles/it              packets/it             cycles/pkt             pkts/batch             vhost qlen             upcalls/it             cycles/upcall        
   5868                   0.00000                0                      0.00000                0.00000                0.00000                0                    
";

/// `dpif-netdev/pmd-stats-show` with a thread.
pub(super) const PMD_STATS_THREAD: &str = "\
pmd thread numa_id 0 core_id 1:
  packets received: 5
  packet recirculations: 0
  avg. datapath passes per packet: 1.00
  phwol hits: 0
  mfex opt hits: 0
  simple match hits: 0
  emc hits: 0
  smc hits: 0
  megaflow hits: 4
  avg. subtable lookups per megaflow hit: 1.00
  miss with success upcall: 1
  miss with failed upcall: 0
  avg. packets per output batch: 1.00
  idle cycles: 6475553257 (99.99%)
  processing cycles: 630422 (0.01%)
  avg cycles per packet: 1295236735.80 (6476183679/5)
  avg processing cycles per packet: 126084.40 (630422/5)
main thread:
  packets received: 0
  packet recirculations: 0
  avg. datapath passes per packet: 0.00
  phwol hits: 0
  mfex opt hits: 0
  simple match hits: 0
  emc hits: 0
  smc hits: 0
  megaflow hits: 0
  avg. subtable lookups per megaflow hit: 0.00
  miss with success upcall: 0
  miss with failed upcall: 0
  avg. packets per output batch: 0.00
";

/// `dpif-netdev/pmd-rxq-show -secs 7`, with a thread that has just begun.
pub(super) const PMD_RXQ: &str = "\
Displaying last 10 seconds pmd usage %
pmd thread numa_id 0 core_id 1:
  isolated : false
  port: p1                queue-id:  0 (enabled)   pmd usage: NOT AVAIL
  port: p2                queue-id:  0 (enabled)   pmd usage: NOT AVAIL
  port: p2                queue-id:  1 (enabled)   pmd usage: NOT AVAIL
  overhead: NOT AVAIL
";
