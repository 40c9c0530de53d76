//! docs/metrics.md, made from the rows.

use super::rows::{Metric, TABLES};
use super::text::{LEFT_OUT, SAMPLES_MAX};
use std::collections::BTreeSet;
use std::path::Path;

/// Set to write the page.
const WRITE: &str = "SLUICE_WRITE_PAGES";

const HEAD: &str = "\
# Metrics

<!-- Made from the rows of crates/sluiced/src/metrics by a test. SLUICE_WRITE_PAGES=1 writes this file. -->

`ovs-vsctl set Open_vSwitch . other_config:metrics=127.0.0.1:9105` serves these metrics for Prometheus at
`http://127.0.0.1:9105/metrics`, a value `unix:PATH` at a socket. Removing the key ends it. [The guide](guide/monitoring.md) shows
how to use them. The address has no password and no TLS: choose one that only the monitoring system reaches.

A text is used again for half a second. Metrics without a sample are left out. NAME stands for a name.
";

fn line(metric: &Metric) -> String {
    let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    format!("| `{}` | {} | {} | {} |\n", metric.name, metric.kind.name(), labels.join(", "), metric.help)
}

fn page() -> String {
    let mut out = HEAD.to_string();
    for table in TABLES {
        out += &format!(
            "\n## {}\n\n{}\n\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n",
            table.title, table.about
        );
        out.extend(table.metrics.iter().map(line));
    }
    out += &format!("| `{}` | gauge | | {} |\n", LEFT_OUT[0], LEFT_OUT[1]);
    out
}

#[test]
fn the_page_shows_the_rows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, page(), "{WRITE}=1 writes {}", path.display());
}

#[test]
fn rows_are_sound() {
    let mut names = BTreeSet::new();
    for metric in TABLES.iter().flat_map(|table| table.metrics) {
        assert!(names.insert(metric.name), "{} has two rows", metric.name);
        let valid =
            |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        assert!(valid(&metric.name.replace("NAME", "")), "{}", metric.name);
        assert!(metric.labels.iter().all(|label| valid(label)), "{}", metric.name);
        assert!(metric.help.ends_with('.') && !metric.help.contains('|'), "{}", metric.name);
    }
    assert!(LEFT_OUT[1].contains(&SAMPLES_MAX.to_string()));
}
