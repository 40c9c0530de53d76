use super::facts::{BridgeFacts, InterfaceFacts, MainFacts, SessionFacts};
use super::snapshot::{PortFacts, Snapshot};
use super::text::{self, SAMPLES_MAX};
use crate::loop_times::{LongestTurn, Part, PartTimes, TurnTimes};
use crate::upcall_times::Times;
use flow::OfPort;
use l2proto::Protocol;
use netdev::dummy::DummyPorts;
use ofproto::ports::BridgeId;

fn snapshot() -> Snapshot {
    let main = MainFacts {
        took_us: 1500,
        uptime_ms: 2000,
        turns: TurnTimes::default(),
        versions: Default::default(),
        ids: Default::default(),
        datapaths: Vec::new(),
        bridges: Vec::new(),
        interfaces: Vec::new(),
        dummies: DummyPorts::default(),
        counters: Vec::new(),
        rates: Vec::new(),
        sessions: Vec::new(),
        lost: Vec::new(),
        cells: 0,
        connections: 0,
        ineffective: 0,
        database: None,
    };
    Snapshot {
        main,
        datapaths: Vec::new(),
        flows: Vec::new(),
        ports: Vec::new(),
        coverage: Vec::new(),
        memory: Vec::new(),
        times: [Times::default(); 3],
        files: [None, None],
        logged: [("ERR", 1), ("WARN", 2), ("INFO", 3), ("DBG", 4)],
        scrapes: 0,
        last_us: 0,
        server: [("evicted", 0), ("timed_out", 0), ("refused", 0)],
    }
}

fn text(snapshot: &Snapshot) -> String {
    String::from_utf8(text::of(snapshot)).unwrap()
}

fn session(interface: String) -> SessionFacts {
    SessionFacts { interface, protocol: Protocol::Bfd, state: Protocol::Bfd.initial_state() }
}

#[test]
fn samples_beyond_the_limit_are_left_out_and_counted() {
    let mut many = snapshot();
    many.main.sessions = (0..SAMPLES_MAX + 5).map(|n| session(format!("p{n}"))).collect();
    let text = text(&many);
    let shown = text.lines().filter(|line| line.starts_with("sluice_link_session_live{")).count();
    assert_eq!(shown, SAMPLES_MAX);
    // Two metrics have a sample of each session.
    assert!(text.ends_with("\nsluice_metrics_left_out 10\n"), "{}", &text[text.len() - 100..]);
}

#[test]
fn names_are_escaped_and_only_metrics_with_samples_are_shown() {
    let mut odd = snapshot();
    odd.main.bridges = vec![BridgeFacts {
        id: BridgeId(1),
        name: "b\"r\\".into(),
        datapath_type: "netdev".to_string(),
        ports: 1,
        datapath: 0,
    }];
    odd.flows = vec![7];
    odd.ports = vec![PortFacts {
        interface: InterfaceFacts {
            bridge: 0,
            name: "p\n0".to_string(),
            port: "p0".to_string(),
            type_name: "patch".to_string(),
            of_port: OfPort(1),
            dp_port: None,
            device: None,
        },
        counters: [("rx_packets".to_string(), 5)].into(),
        drops: vec![("rules", 3)],
        waiting: 0,
    }];
    odd.coverage = vec![("netdev_sent", 4)];
    odd.times[0].buckets[1] = 2;
    odd.times[0].buckets[15] = 1;
    odd.times[0].sum_us = 1_500_000;
    odd.main.turns.turns.add(20_000);
    odd.main.turns.parts[Part::Routes as usize] = PartTimes { sum_us: 19_000, longest_us: 18_000 };
    odd.main.turns.longest = Some(LongestTurn { us: 20_000, at_ms: 7, part: Part::Routes, part_us: 19_000 });
    let text = text(&odd);
    let labels = r#"{bridge="b\"r\\",port="p0",interface="p\n0",type="patch"}"#;
    for line in [
        "ovs_bridge_flow_count{bridge=\"b\\\"r\\\\\",datapath_type=\"netdev\"} 7".to_string(),
        "# TYPE ovs_interface_rx_packets counter".to_string(),
        format!("ovs_interface_rx_packets{labels} 5"),
        format!("ovs_interface_rx_bytes{labels} 0"),
        format!("ovs_interface_link_state{labels} 1"),
        r#"sluice_port_drops_total{bridge="b\"r\\",interface="p\n0",reason="rules"} 3"#.to_string(),
        "ovs_coverage_netdev_sent_total 4".to_string(),
        r#"sluice_upcall_seconds_bucket{stage="wait",le="0.00001"} 0"#.to_string(),
        r#"sluice_upcall_seconds_bucket{stage="wait",le="0.000025"} 2"#.to_string(),
        r#"sluice_upcall_seconds_bucket{stage="wait",le="1"} 2"#.to_string(),
        r#"sluice_upcall_seconds_bucket{stage="wait",le="+Inf"} 3"#.to_string(),
        r#"sluice_upcall_seconds_sum{stage="wait"} 1.5"#.to_string(),
        r#"sluice_upcall_seconds_count{stage="wait"} 3"#.to_string(),
        "sluice_metrics_main_loop_seconds 0.0015".to_string(),
        r#"sluice_main_loop_seconds_bucket{le="0.01"} 0"#.to_string(),
        r#"sluice_main_loop_seconds_bucket{le="0.025"} 1"#.to_string(),
        "sluice_main_loop_seconds_sum 0.02".to_string(),
        r#"sluice_main_loop_longest_seconds{part="routes"} 0.02"#.to_string(),
        r#"sluice_main_loop_part_seconds_total{part="routes"} 0.019"#.to_string(),
        r#"sluice_main_loop_part_seconds_total{part="others"} 0"#.to_string(),
        "sluice_metrics_left_out 0".to_string(),
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    assert!(!text.contains("ovs_pmd_"), "{text}");
}
