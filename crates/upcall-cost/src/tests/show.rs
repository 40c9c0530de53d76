//! Printed and drawn output.

use testkit::TempDir;

use super::known::KNOWN;
use super::scenario::analysed;
use crate::{export, plot, text};

#[test]
fn outliers_are_listed_with_their_worst_stage() {
    let mut scenario = String::from("port 1 veth1\nthread 5 handler1\nthread 6 handler2\n");
    for id in 1..=50u64 {
        let (start, slow) = (id * 100_000, if id == 25 { 40_000 } else { 0 });
        let thread = 5 + id % 2;
        scenario += &format!(
            "{} miss id={id:x} port=1 packet=p{id}\n{} received id={id:x} thread={thread} port=1 batch=1\n\
             {} executed id={id:x}\n",
            start,
            start + 1000 + id,
            start + 3000 + slow + 2 * id,
        );
    }
    let report = analysed(&scenario).report;
    assert_eq!((report.outliers_all, report.outliers.len()), (1, 1));
    let slow = &report.outliers[0];
    assert_eq!((slow.at_ns, slow.ns, slow.worst.ns), (2_400_000, 43_050, 42_025));
    assert_eq!((slow.worst.from.name(), slow.worst.to.name()), ("received", "executed"));
    assert_eq!((slow.port.as_str(), slow.thread.as_str()), ("veth1", "handler2"));
    assert_eq!((slow.packet.as_str(), slow.packet_bytes), ("icmp 10.0.0.1 > 10.0.0.2 type 8", 98));
    let full = text::full(&report, 5, 10);
    assert!(full.contains("received → executed  42.025"), "{full}");
    assert!(text::summary(&report).lines().count() <= 12);
}

#[test]
fn a_port_with_a_handful_of_upcalls_says_nothing_of_fairness() {
    let one = |id: u64, port: u32, wait: u64| {
        let start = id * 10_000;
        format!(
            "{start} miss id={id:x} port={port} packet=p{id}\n{} received id={id:x} thread=5\n",
            start + wait
        )
    };
    let many: String = (1..=200).map(|id| one(id, id as u32 % 2, 1000)).collect();
    assert_eq!(analysed(&many).report.port_fairness.delays, Some(1.0));
    let report = analysed(&(many + &one(300, 7, 9_000_000))).report;
    assert_eq!((report.ports.len(), report.port_fairness.delays), (3, Some(1.0)));
}

#[test]
fn json_has_what_the_text_has() {
    let json = export::json(&analysed(KNOWN).report);
    assert_eq!(json["figures"]["total"]["mean_ns"], serde_json::json!(7825.0));
    assert_eq!(json["events"]["miss"], serde_json::json!({"usable": 5, "total": 7, "missed": 2}));
    assert_eq!(json["batches"], serde_json::json!({"1": 2, "2": 2}));
    assert_eq!(json["ports"][1]["name"], "veth2");
    assert_eq!(json["ports"][1]["refused"], 1);
    assert_eq!(json["upcalls"]["ambiguous"], 2);
    assert_eq!(json["stages"]["miss_to_enqueued"]["count"], 3);
}

#[test]
fn csv_has_a_row_for_each_matched_upcall() {
    let mut out = Vec::new();
    export::csv(&[analysed(KNOWN)], &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 6);
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    let at = |name: &str| rows[0].iter().position(|head| *head == name).unwrap_or_else(|| panic!("{name}"));
    let cell = |row: usize, name: &str| rows[row][at(name)];
    assert_eq!(
        (cell(1, "upcall"), cell(1, "port_name"), cell(1, "thread_name")),
        ("000000000000000a", "veth1", "handler1")
    );
    assert_eq!(
        (cell(1, "at_miss_ns"), cell(1, "total_ns"), cell(1, "overhead_ns")),
        ("1000", "12000", "6000")
    );
    // The refused one has no durations; the one without an id no id.
    assert_eq!((cell(4, "at_refused_ns"), cell(4, "total_ns")), ("30100", ""));
    assert_eq!((cell(5, "upcall"), cell(5, "total_ns")), ("", "4000"));
}

#[test]
fn sets_are_listed() {
    let mut out = Vec::new();
    export::sets(&analysed(KNOWN), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let last = text.lines().last().unwrap();
    assert_eq!(
        last,
        "  0.000049000 veth2 handler2 98 bytes, icmp 10.0.0.1 > 10.0.0.2 type 8: miss +0, received +1000, put-sent +2000, \
         execute-sent +3000, executed +4000"
    );
    assert_eq!(text.lines().count(), 6);
}

#[test]
fn recordings_are_compared_by_ratios() {
    let slow = KNOWN.replace("13000 executed", "25000 executed").replace("14000 on-wire", "26000 on-wire");
    let reports = [analysed(KNOWN).report, analysed(&slow).report];
    let text = text::comparison(&reports);
    let row = text.lines().skip_while(|line| !line.contains("total: miss to executed")).nth(1).unwrap();
    // (24000 + 11100 + 4200 + 4000)/4 = 10825 beside 7825; the median is unchanged.
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((words[2], words[7], words[8]), ("10.825", "1.383", "1.000"), "{row}");
}

#[test]
fn nothing_gathered_is_said_plainly() {
    let report = analysed("start sluiced ring\nend").report;
    assert!(text::full(&report, 20, 10).contains("there is nothing to measure"));
    assert!(text::summary(&report).contains("nothing to measure"));
    let error = plot::svg(&[report]).unwrap_err();
    assert!(error.to_string().starts_with("there is nothing to draw"));
}

#[test]
fn metrics_are_drawn() {
    let reports = [analysed(KNOWN).report, analysed(KNOWN).report];
    let svg = plot::svg(&reports).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for report in &reports[..1] {
        for measured in report.main.iter().chain(&report.stages) {
            assert!(svg.contains(measured.metric.title), "{}", measured.metric.title);
        }
    }
    let folder = TempDir::new("plot").unwrap();
    let path = folder.path().join("figure.png");
    match plot::draw(&reports, &path) {
        Ok(()) => {
            let png = std::fs::File::open(&path).unwrap();
            let reader = png::Decoder::new(std::io::BufReader::new(png)).read_info().unwrap();
            assert_eq!(reader.info().width, 2000);
        }
        Err(error) => {
            assert!(error.to_string().starts_with("no font (.ttf) found"), "{error:#}");
            println!("SKIP: figures_are_drawn: {error}");
        }
    }
    let bad = plot::draw(&reports, &folder.path().join("figure.pdf")).unwrap_err();
    assert!(bad.to_string().ends_with("the name of a figure ends in .svg or .png"));
}

#[test]
fn a_missing_font_is_reported_with_a_remedy() {
    let folder = TempDir::new("fonts").unwrap();
    let error = plot::find_font(&[folder.path().to_owned()]).unwrap_err();
    assert!(error.to_string().contains("have the figure as .svg"), "{error}");
}

#[test]
fn a_switch_without_probes_is_shown_from_kernel_events() {
    let report = analysed(
        "start ovs-vswitchd bpf\nport 1 veth1\n10 miss packet=A port=1\n30 miss packet=B port=1\n50 executed thread=5 packet=A",
    )
    .report;
    assert_eq!((report.upcalls.matched, report.upcalls.single), (1, 1));
    assert_eq!(
        (report.ports[0].upcalls, report.ports[0].not_received, report.ports[0].packet_path.mean),
        (2, 1, 40.0)
    );
    let full = text::full(&report, 5, 10);
    assert!(full.contains("NOTE: no handler reported batches"), "{full}");
    assert!(
        full.contains("Upcalls handled per thread (wait: miss to handler, way: total; µs)\n  not reported"),
        "{full}"
    );
}
