//! The metrics: one row each, in the order of the text and of docs/metrics.md.
//!
//! Names that exporters of OVS have keep the types, the labels and the meaning that they have there, also where Prometheus
//! advises another form: dashboards depend on them. Names of Sluice alone begin with `sluice_`.

mod ovs;
mod own;
mod threads;

use super::snapshot::Snapshot;

/// Type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    /// Its name in the text.
    #[cfg(test)]
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric.
pub(super) struct Metric {
    /// Its name; a part `NAME` stands for the name of a counter, which is then the first value of each sample, without a label.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
    /// Adds its samples.
    pub(super) source: fn(&Snapshot, &mut dyn Sink),
}

/// Takes samples: values of the labels, in their order.
pub(super) trait Sink {
    fn add(&mut self, labels: &[&str], value: f64);

    /// A histogram: upper bounds with counts below or at them (the last for all), and the sum.
    fn add_histogram(&mut self, labels: &[&str], buckets: &[(f64, u64)], sum: f64);
}

/// A table of metrics.
#[cfg_attr(not(test), expect(dead_code, reason = "the page has titles"))]
pub(super) struct Table {
    pub(super) title: &'static str,
    pub(super) about: &'static str,
    pub(super) metrics: &'static [Metric],
}

/// All metrics.
pub(super) const TABLES: [Table; 4] = [
    Table {
        title: "Switch, bridges, interfaces, datapaths",
        about: "Names and labels of OpenStack's exporter. `type` of an interface is that of the database, `type` of a datapath \
                `netdev` or `system`.",
        metrics: ovs::FIRST,
    },
    Table {
        title: "Forwarding threads",
        about: "Names and labels of OpenStack's exporter: `cpu` is the core of the thread. The flow cache of Sluice takes the place \
                of both caches of OVS: its hits are `ovs_pmd_smc_hits`.",
        metrics: threads::ROWS,
    },
    Table {
        title: "Names of another exporter",
        about: "The same facts under the names that another widely used exporter has. `component` is `ovs-vswitchd`, also of the \
                database that the switch serves itself.",
        metrics: ovs::SECOND,
    },
    Table { title: "Only Sluice has them", about: "Times are in seconds.", metrics: own::ROWS },
];

const fn row(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
    source: fn(&Snapshot, &mut dyn Sink),
) -> Metric {
    Metric { name, kind, labels, help, source }
}

/// A truth as a number.
fn number(is: bool) -> f64 {
    f64::from(u8::from(is))
}
