//! Verdicts and pictures.

use crate::goals::verdicts;
use crate::plots::{bars, over_batches};
use crate::report::{Row, Sample, SideSamples};

fn row(id: &str, sides: &[(&str, &[f64])]) -> Row {
    let side = |(name, values): &(&str, &[f64])| SideSamples {
        side: name.to_string(),
        samples: values.iter().map(|v| Sample { value: Some(*v), ..Sample::default() }).collect(),
    };
    let sides = sides.iter().map(side).collect();
    Row { id: id.to_string(), title: format!("about {id} <&>"), unit: "Mpps", sides }
}

/// Result of a row's goals: peer, ratio, and whether it was met.
fn judged(row: Row) -> Vec<(Option<String>, Option<f64>, Option<bool>)> {
    let all = verdicts(&[row]);
    all.into_iter().map(|v| (v.peer.map(|p| p.0), v.ratio.map(|r| r.median), v.met)).collect()
}

#[test]
fn goals_compare_with_the_better_peer() {
    let peer = |name: &str| Some(name.to_string());
    let rates: &[(&str, &[f64])] = &[
        ("sluice", &[6.0, 6.0, 9.0]),
        ("ovs-dpdk", &[2.0, 2.0, 2.0]),
        ("ovs-dpdk, no cache", &[2.0, 3.0, 3.0]),
    ];
    // 6/2, 6/3, 9/3: the ratio is of rounds, not of medians.
    assert_eq!(judged(row("pcap-17masks", rates)), [(peer("ovs-dpdk, no cache"), Some(3.0), Some(true))]);
    let slow: &[(&str, &[f64])] = &[("sluice", &[2.4]), ("ovs-dpdk", &[1.0])];
    assert_eq!(judged(row("pcap-100000", slow)), [(peer("ovs-dpdk"), Some(2.4), Some(false))]);
    let alone: &[(&str, &[f64])] = &[("sluice", &[2.4])];
    assert_eq!(judged(row("pcap-1", alone)), [(None, None, None)]);
    // Less is better: the faster peer counts, and both peers have separate goals.
    let delays: &[(&str, &[f64])] = &[("sluice", &[4.0]), ("ovs-netdev", &[10.0]), ("linux-bridge", &[1.0])];
    assert_eq!(judged(row("delay-p50-2ports", delays)), [(peer("ovs-netdev"), Some(0.4), Some(true))]);
    let both: &[(&str, &[f64])] =
        &[("sluice", &[8.0]), ("ovs-netdev, tso", &[9.0]), ("linux-bridge", &[10.0])];
    let expected = [
        (peer("ovs-netdev, tso"), Some(8.0 / 9.0), Some(false)),
        (peer("linux-bridge"), Some(0.8), Some(true)),
    ];
    assert_eq!(judged(row("tcp", both)), expected);
}

#[test]
fn goals_of_a_value_and_rows_without_a_goal() {
    for (value, met) in [(1.5, true), (1.504, true), (1.51, false)] {
        assert_eq!(judged(row("lookups-2", &[("sluice", &[value])])), [(None, None, Some(met))]);
    }
    let others: &[(&str, &[f64])] = &[("sluice", &[2.0]), ("a", &[1.0]), ("b", &[4.0])];
    let expected = [(Some("a".to_string()), Some(2.0), None), (Some("b".to_string()), Some(0.5), None)];
    assert_eq!(judged(row("ablation-1000", others)), expected);
    assert_eq!(judged(row("ablation-1000", &[("sluice", &[])])), []);
}

#[test]
fn a_hundred_ports_are_compared_with_two() {
    let rows =
        [row("delay-p50-2ports", &[("sluice", &[10.0])]), row("delay-p50-100ports", &[("sluice", &[13.0])])];
    let last = verdicts(&rows).pop().unwrap();
    assert_eq!((last.row.as_str(), last.met), ("delay-p50-100ports", Some(false)));
    assert!(
        last.text().contains("NOT MET") && last.text().contains("sluice with 2 ports"),
        "{}",
        last.text()
    );
}

/// Opening and closing tags of an SVG agree, and nothing is left unescaped.
fn well_formed(svg: &str) {
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    assert!(!svg.contains("<&>") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}

#[test]
fn bars_show_every_side_at_the_scale_of_its_row() {
    let rows = [
        row("first", &[("sluice", &[50.0, 100.0, 60.0]), ("peer", &[25.0])]),
        row("second", &[("sluice", &[]), ("peer", &[0.0])]),
    ];
    let svg = bars(&rows);
    well_formed(&svg);
    // Medians of 60 and 25 of a most of 100, on 720 points.
    assert!(svg.contains("width=\"432.0\"") && svg.contains("width=\"180.0\""), "{svg}");
    assert!(svg.contains("about first &lt;&amp;&gt;") && svg.contains(">none<"), "{svg}");
    well_formed(&bars(&[]));
}

#[test]
fn batches_are_drawn_where_there_are_two_sizes() {
    let sizes: &[(&str, &[f64])] = &[
        ("sluice", &[9.0]),
        ("sluice batch 1", &[2.0]),
        ("sluice batch 16", &[8.0]),
        ("sluice batch 256", &[10.0, 6.0]),
    ];
    let svg = over_batches(&row("batch", sizes)).unwrap();
    well_formed(&svg);
    assert_eq!(svg.matches("<circle").count(), 3);
    // 16 is halfway from 1 to 256 in bits: the middle between 80 and 1160.
    assert!(svg.contains("cx=\"620.0\""), "{svg}");
    assert!(over_batches(&row("other", &[("sluice", &[1.0]), ("ovs", &[2.0])])).is_none());
    assert!(over_batches(&row("one", &[("sluice batch 8", &[1.0])])).is_none());
}

#[test]
fn a_row_tells_its_faults() {
    let mut row = row("tunnel-push", &[("sluice", &[9.0]), ("ovs-dpdk", &[3.0])]);
    row.sides[1].samples[0].fault = Some("7 of 9 packets lost, 1 explained".into());
    let text = row.text();
    let fault = "    failed: 7 of 9 packets lost, 1 explained\n";
    assert!(text.ends_with(fault) && text.matches("failed").count() == 1, "{text}");
    assert_eq!(row.faults(), ["tunnel-push, ovs-dpdk: 7 of 9 packets lost, 1 explained"]);
}
