//! Histograms with the bins of stock switches: tools read their walls.

/// Bins of a histogram; the last takes all samples beyond its wall.
pub(crate) const BINS: usize = 32;

/// Inclusive upper bounds of all bins but the last.
pub(crate) type Walls = [u64; BINS - 1];

/// Cycles of an iteration.
pub(crate) const ITERATION_CYCLES: Walls = [
    499, 716, 1025, 1469, 2104, 3014, 4317, 6183, 8857, 12686, 18171, 26027, 37279, 53395, 76480, 109544,
    156903, 224736, 321895, 461058, 660385, 945886, 1354815, 1940535, 2779476, 3981111, 5702243, 8167461,
    11698454, 16755981, 24000000,
];
/// Packets of an iteration.
pub(crate) const ITERATION_PACKETS: Walls = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 17, 22, 28, 35, 45, 57, 72, 92, 117, 148, 188, 239, 303, 385,
    489, 621, 788, 1000,
];
/// Cycles per packet.
pub(crate) const PACKET_CYCLES: Walls = even(100, 30_000);
/// Packets of a receive batch.
pub(crate) const BATCH_PACKETS: Walls = even(0, 32);
/// Frames waiting in a queue of a vhost-user port.
pub(crate) const VHOST_FRAMES: Walls = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 20, 25, 31, 38, 48, 59, 73, 91, 113, 140, 174, 216,
    268, 332, 412, 512,
];
/// Upcalls of an iteration.
pub(crate) const ITERATION_UPCALLS: Walls = even(0, 30);
/// Cycles per upcall.
pub(crate) const UPCALL_CYCLES: Walls = [
    999, 1258, 1584, 1995, 2511, 3162, 3981, 5011, 6309, 7943, 9999, 12589, 15848, 19952, 25118, 31622,
    39810, 50118, 63095, 79432, 99999, 125892, 158489, 199526, 251188, 316227, 398107, 501187, 630957,
    794328, 1000000,
];

const fn even(min: u64, max: u64) -> Walls {
    let mut walls = [0; BINS - 1];
    let mut i = 0;
    while i < walls.len() {
        walls[i] = min + i as u64 * (max - min) / (BINS as u64 - 2);
        i += 1;
    }
    walls
}

/// Number of samples in each bin.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    walls: &'static Walls,
    bins: [u64; BINS],
}

impl Histogram {
    pub(crate) fn new(walls: &'static Walls) -> Histogram {
        Histogram { walls, bins: [0; BINS] }
    }

    /// Adds a sample.
    pub(crate) fn add(&mut self, sample: u64) {
        self.bins[self.walls.partition_point(|wall| *wall < sample)] += 1;
    }

    /// A histogram of this number of zero samples.
    pub(crate) fn of_zeros(walls: &'static Walls, samples: u64) -> Histogram {
        let mut bins = [0; BINS];
        bins[0] = samples;
        Histogram { walls, bins }
    }

    /// Wall and samples of a bin; the last has no wall.
    pub(crate) fn bin(&self, n: usize) -> (Option<u64>, u64) {
        (self.walls.get(n).copied(), self.bins[n])
    }
}
