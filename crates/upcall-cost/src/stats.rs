//! Statistics of durations in nanoseconds, exact: all values are sorted.

/// Summary of a set of values, in nanoseconds except the variance (ns²).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Summary {
    /// Number of values.
    pub count: usize,
    /// The least.
    pub min: u64,
    /// The largest.
    pub max: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Population variance: divided by the count.
    pub variance: f64,
    /// Standard deviation: root of the variance.
    pub sd: f64,
    /// The middle value, or the mean of the two in the middle.
    pub median: f64,
    /// First and third quartile, by [`percentile`].
    pub quartiles: (u64, u64),
    /// By [`PERCENTILES`].
    pub percentiles: [u64; PERCENTILES.len()],
}

/// The computed percentiles.
pub const PERCENTILES: [f64; 4] = [90.0, 95.0, 99.0, 99.9];

impl Summary {
    /// Summarizes these values; sorts them. All zero if empty.
    pub fn of(values: &mut [u64]) -> Summary {
        values.sort_unstable();
        let (Some(min), Some(max)) = (values.first().copied(), values.last().copied()) else {
            return Summary::default();
        };
        let count = values.len();
        let mean = values.iter().map(|value| *value as f64).sum::<f64>() / count as f64;
        let variance = values.iter().map(|value| (*value as f64 - mean).powi(2)).sum::<f64>() / count as f64;
        let median = (values[(count - 1) / 2] as f64 + values[count / 2] as f64) / 2.0;
        Summary {
            count,
            min,
            max,
            mean,
            variance,
            sd: variance.sqrt(),
            median,
            quartiles: (percentile(values, 25.0), percentile(values, 75.0)),
            percentiles: PERCENTILES.map(|percent| percentile(values, percent)),
        }
    }

    /// The 99th percentile.
    pub fn p99(&self) -> u64 {
        self.percentiles[2]
    }

    /// Limit of outliers: three times the interquartile range above the upper quartile (Tukey's outer fence).
    pub fn outlier_limit(&self) -> u64 {
        let (low, high) = self.quartiles;
        high.saturating_add((high - low).saturating_mul(3))
    }

    /// Ends of the whiskers of a box plot: the last values within one and a half times the interquartile
    /// range.
    pub fn whiskers(&self, sorted: &[u64]) -> (u64, u64) {
        let (low, high) = self.quartiles;
        let reach = (high - low).saturating_mul(3) / 2;
        let first = sorted.partition_point(|value| *value < low.saturating_sub(reach));
        let last = sorted.partition_point(|value| *value <= high.saturating_add(reach));
        let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
        (at(first), at(last.saturating_sub(1)))
    }
}

/// The nearest-rank percentile of sorted values: the least value not exceeded by at least `percent` of all. 0
/// if empty.
pub fn percentile(sorted: &[u64], percent: f64) -> u64 {
    let rank = (percent / 100.0 * sorted.len() as f64 - 1e-9).ceil().max(1.0) as usize;
    sorted.get(rank.min(sorted.len()).wrapping_sub(1)).copied().unwrap_or_default()
}

/// Jain's fairness index of shares: 1 if all are equal, 1/n if one has all. `None` if the sum is 0.
pub fn jain(shares: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum, squares) =
        shares.fold((0u32, 0.0, 0.0), |(count, sum, squares), x| (count + 1, sum + x, squares + x * x));
    (squares > 0.0).then(|| sum * sum / (f64::from(count) * squares))
}

/// A bucket of a histogram: values from `from` (inclusive) to `to` (exclusive); the last one includes all
/// larger values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// Its lower bound.
    pub from: u64,
    /// Its upper bound; for the last one the largest value.
    pub to: u64,
    /// Number of values.
    pub count: usize,
}

/// A histogram of sorted values in `buckets` of equal width; if a few values are far larger than the rest,
/// they share the last bucket.
pub fn histogram(sorted: &[u64], buckets: usize) -> Vec<Bucket> {
    let (Some(min), Some(max)) = (sorted.first().copied(), sorted.last().copied()) else { return Vec::new() };
    let common = percentile(sorted, 99.0);
    let end = if (max - min) / 4 > common - min { common } else { max };
    let (buckets, span) = (buckets.max(1) as u128, u128::from(end - min) + 1);
    let mut found: Vec<Bucket> = Vec::new();
    let mut done = 0;
    for bucket in 0..buckets {
        let bound = |bucket: u128| min + (span * bucket / buckets) as u64;
        let (from, last) = (bound(bucket), bucket + 1 == buckets);
        let to = if last { max } else { bound(bucket + 1) };
        let upto = if last { sorted.len() } else { sorted.partition_point(|value| *value < to) };
        // Less than one nanosecond wide.
        if from < to || last {
            found.push(Bucket { from, to, count: upto - done });
        }
        done = upto;
    }
    found
}
