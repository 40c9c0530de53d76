//! Statistics of delays.

use crate::model::record;

record! {
    /// Delays of one measurement, in ns; all 0 without any.
    pub struct Summary {
        /// Their number.
        pub count: u64,
        /// Minimum.
        pub min_ns: f64,
        /// Mean.
        pub avg_ns: f64,
        /// Greatest.
        pub max_ns: f64,
        /// Standard deviation, as in ping(8).
        pub mdev_ns: f64,
        /// Median.
        pub p50_ns: f64,
        /// 90 of 100 are not greater.
        pub p90_ns: f64,
        /// 99 of 100 are not greater.
        pub p99_ns: f64,
        /// 999 of 1000 are not greater.
        pub p999_ns: f64,
    }
}

/// Mean and standard deviation of the whole.
pub fn mean_and_deviation(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count();
    if count == 0 {
        return (0.0, 0.0);
    }
    let mean = values.clone().sum::<f64>() / count as f64;
    let variance = values.map(|v| (v - mean).powi(2)).sum::<f64>() / count as f64;
    (mean, variance.sqrt())
}

/// The least value not exceeded by `per_mille` of a thousand of the sorted values (nearest rank).
fn percentile(sorted: &[u64], per_mille: usize) -> f64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted.get(rank - 1).map_or(0.0, |v| *v as f64)
}

impl Summary {
    /// Summarizes these delays, in any order.
    pub fn of(mut delays_ns: Vec<u64>) -> Summary {
        delays_ns.sort_unstable();
        let (avg_ns, mdev_ns) = mean_and_deviation(delays_ns.iter().map(|d| *d as f64));
        let edge = |delay: Option<&u64>| delay.map_or(0.0, |d| *d as f64);
        Summary {
            count: delays_ns.len() as u64,
            min_ns: edge(delays_ns.first()),
            avg_ns,
            max_ns: edge(delays_ns.last()),
            mdev_ns,
            p50_ns: percentile(&delays_ns, 500),
            p90_ns: percentile(&delays_ns, 900),
            p99_ns: percentile(&delays_ns, 990),
            p999_ns: percentile(&delays_ns, 999),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computed_by_hand() {
        let s = Summary::of(vec![4, 2, 4, 4, 5, 5, 7, 9]);
        assert_eq!((s.count, s.min_ns, s.avg_ns, s.max_ns, s.mdev_ns), (8, 2.0, 5.0, 9.0, 2.0));
        assert_eq!((s.p50_ns, s.p90_ns, s.p99_ns), (4.0, 9.0, 9.0));
        let s = Summary::of((1..=1000).collect());
        assert_eq!((s.p50_ns, s.p90_ns, s.p99_ns, s.p999_ns), (500.0, 900.0, 990.0, 999.0));
    }

    #[test]
    fn nothing_is_all_zero() {
        assert_eq!(Summary::of(Vec::new()), Summary::default());
    }
}
