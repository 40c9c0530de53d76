//! [`Hops`]: the next hops of a route, its own or those of a next-hop object of the kernel (`ip nexthop`).

use std::net::IpAddr;
use std::sync::Arc;

/// Maximum next hops of a route or an object; further ones are not used.
pub const HOPS_MAX: usize = 256;
/// Maximum next-hop objects.
pub const OBJECTS_MAX: usize = 65_536;

/// A next hop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// Output device.
    pub device: Arc<str>,
    /// Next hop; `None` if the destination is on the link. May be of IPv6 for a destination of IPv4.
    pub gateway: Option<IpAddr>,
    /// The kernel does not use it, because its link is down.
    pub is_dead: bool,
}

impl NextHop {
    /// Whether device and gateway are equal. `is_dead` may differ.
    fn is_same(&self, other: &NextHop) -> bool {
        (&self.device, self.gateway) == (&other.device, other.gateway)
    }
}

/// The next hops of a route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hops {
    /// None: the route refuses packets.
    None,
    /// One.
    One(NextHop),
    /// Several, in the kernel's order.
    Many(Arc<[NextHop]>),
    /// The hops of the object of this number.
    Object(u32),
}

impl Hops {
    /// These next hops, at most [`HOPS_MAX`].
    pub fn of(mut hops: Vec<NextHop>) -> Hops {
        hops.truncate(HOPS_MAX);
        match hops.len() {
            0 => Hops::None,
            1 => hops.pop().map_or(Hops::None, Hops::One),
            _ => Hops::Many(hops.into()),
        }
    }

    /// One in use.
    pub fn one(device: &str, gateway: Option<IpAddr>) -> Hops {
        Hops::One(NextHop { device: device.into(), gateway, is_dead: false })
    }

    /// The first of its own ones.
    pub fn first(&self) -> Option<&NextHop> {
        self.own().first()
    }

    /// Its own ones.
    pub(crate) fn own(&self) -> &[NextHop] {
        match self {
            Hops::None | Hops::Object(_) => &[],
            Hops::One(hop) => std::slice::from_ref(hop),
            Hops::Many(hops) => hops,
        }
    }

    /// Whether they lead to the same places, used or not.
    pub(crate) fn is_same(&self, other: &Hops) -> bool {
        match (self, other) {
            (Hops::Object(a), Hops::Object(b)) => a == b,
            (Hops::Object(_), _) | (_, Hops::Object(_)) => false,
            _ => self.own().len() == other.own().len() && self.are_within(other),
        }
    }

    /// Whether each of its own is one of the others'.
    pub(crate) fn are_within(&self, others: &Hops) -> bool {
        self.own().iter().all(|hop| others.own().iter().any(|other| hop.is_same(other)))
    }

    /// These without others; `None` if the others are not among them.
    pub(crate) fn without(&self, others: &Hops) -> Option<Hops> {
        let is_part = !others.own().is_empty() && others.are_within(self);
        let stays = |hop: &&NextHop| !others.own().iter().any(|other| hop.is_same(other));
        is_part.then(|| Hops::of(self.own().iter().filter(stays).cloned().collect()))
    }
}

/// A next-hop object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HopObject {
    /// A next hop.
    Hop(NextHop),
    /// Discards packets.
    Blackhole,
    /// The objects of these numbers.
    Group(Arc<[u32]>),
}
