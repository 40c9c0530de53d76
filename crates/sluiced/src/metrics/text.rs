//! The text of a snapshot, in the format of Prometheus (version 0.0.4).

use super::rows::{Kind, Metric, Sink, TABLES};
use super::snapshot::Snapshot;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric as Sample, MetricFamily, MetricType,
};
use prometheus::{Encoder as _, TextEncoder};

/// `Content-Type` of the text.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Samples of one metric, at most.
pub(super) const SAMPLES_MAX: usize = 20_000;
/// Name and help of the metric that counts the others' samples beyond the limit.
pub(super) const LEFT_OUT: [&str; 2] = [
    "sluice_metrics_left_out",
    "Samples that this text lacks: a metric has at most 20000; the first ones in the order of the rows stay.",
];

/// Collects the samples of one metric.
struct Samples {
    metric: &'static Metric,
    samples: Vec<Sample>,
    /// Names of the samples, for a metric with `NAME` in its own.
    names: Vec<String>,
    left_out: u64,
}

impl Samples {
    fn labelled(&mut self, values: &[&str]) -> Option<Sample> {
        if self.samples.len() >= SAMPLES_MAX {
            self.left_out += 1;
            return None;
        }
        let values = match self.metric.name.contains("NAME") {
            true => {
                let (name, values) = values.split_first()?;
                self.names.push(self.metric.name.replace("NAME", name));
                values
            }
            false => values,
        };
        debug_assert_eq!(values.len(), self.metric.labels.len(), "{}", self.metric.name);
        let pair = |(name, value): (&&str, &&str)| {
            let mut pair = LabelPair::default();
            pair.set_name(name.to_string());
            pair.set_value(value.to_string());
            pair
        };
        Some(Sample::from_label(self.metric.labels.iter().zip(values).map(pair).collect()))
    }
}

impl Sink for Samples {
    fn add(&mut self, labels: &[&str], value: f64) {
        let Some(mut sample) = self.labelled(labels) else { return };
        set(&mut sample, self.metric.kind, value);
        self.samples.push(sample);
    }

    fn add_histogram(&mut self, labels: &[&str], buckets: &[(f64, u64)], sum: f64) {
        let Some(mut sample) = self.labelled(labels) else { return };
        let bucket = |(bound, count): &(f64, u64)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(*count);
            bucket
        };
        let mut histogram = Histogram::default();
        // The encoder adds the bucket of all.
        histogram.set_bucket(buckets.iter().filter(|(bound, _)| bound.is_finite()).map(bucket).collect());
        histogram.set_sample_count(buckets.last().map_or(0, |(_, count)| *count));
        histogram.set_sample_sum(sum);
        sample.set_histogram(histogram);
        self.samples.push(sample);
    }
}

fn set(sample: &mut Sample, kind: Kind, value: f64) {
    if kind == Kind::Counter {
        let mut counter = Counter::default();
        counter.set_value(value);
        sample.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        sample.set_gauge(gauge);
    }
}

fn family(name: String, help: &str, kind: Kind, samples: Vec<Sample>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name);
    family.set_help(help.to_string());
    family.set_field_type(match kind {
        Kind::Counter => MetricType::COUNTER,
        Kind::Gauge => MetricType::GAUGE,
        Kind::Histogram => MetricType::HISTOGRAM,
    });
    family.set_metric(samples);
    family
}

/// The text. Metrics without samples are left out.
pub(super) fn of(snapshot: &Snapshot) -> Vec<u8> {
    let (mut out, mut left_out) = (Vec::new(), 0);
    for metric in TABLES.iter().flat_map(|table| table.metrics) {
        let mut samples = Samples { metric, samples: Vec::new(), names: Vec::new(), left_out: 0 };
        (metric.source)(snapshot, &mut samples);
        let Samples { samples, names, left_out: more, .. } = samples;
        left_out += more;
        if names.is_empty() {
            write(&mut out, family(metric.name.to_string(), metric.help, metric.kind, samples));
            continue;
        }
        for (name, sample) in names.into_iter().zip(samples) {
            write(&mut out, family(name, metric.help, metric.kind, vec![sample]));
        }
    }
    let mut sample = Sample::default();
    set(&mut sample, Kind::Gauge, left_out as f64);
    write(&mut out, family(LEFT_OUT[0].to_string(), LEFT_OUT[1], Kind::Gauge, vec![sample]));
    out
}

fn write(out: &mut Vec<u8>, family: MetricFamily) {
    if !family.get_metric().is_empty() {
        // Writing into memory never fails, and the family has a name.
        let _ = TextEncoder::new().encode(&[family], out);
    }
}
