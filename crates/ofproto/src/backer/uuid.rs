//! Identifiers of bridges, for controllers that resume a paused translation.

use super::Backer;
use crate::ids::BridgeId;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

impl Backer {
    /// Identifies a bridge of this process.
    pub fn bridge_uuid(&self, bridge: BridgeId) -> [u8; 16] {
        let mut uuid = [0; 16];
        for (half, part) in uuid.chunks_mut(8).zip(0u8..) {
            // One-way: the seed of the tables stays secret.
            let mut hasher = DefaultHasher::new();
            (self.hash_seed, bridge.0, part).hash(&mut hasher);
            half.copy_from_slice(&hasher.finish().to_be_bytes());
        }
        uuid
    }
}
