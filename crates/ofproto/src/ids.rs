//! Numbers of bridges, bundles and connections.

/// A bridge of this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct BridgeId(pub u32);

/// A bundle (a `Port` of the database: one interface, or several bonded) of a bridge.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct BundleId(pub u32);

impl BundleId {
    /// No bundle: packets of a controller, and a port that is in none.
    pub const NONE: BundleId = BundleId(u32::MAX);
}

/// An OpenFlow connection of a bridge.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConnId(pub u64);
