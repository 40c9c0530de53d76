//! Bridges by name, fake ones too. A fake bridge (`add-br NAME PARENT VLAN`) is a port of its parent with
//! `fake_bridge=true` and the VLAN as its tag. Ports of the parent with the same tag are its ports.

use ovsdb::value::Datum;

use super::Stop;
use super::bridge::ports;
use super::context::Context;
use super::work::{Row, Work};

/// Highest VLAN of a fake bridge.
const VLAN_MAX: i64 = 4095;

/// A bridge.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Bridge {
    pub(crate) name: String,
    /// Its row, or that of its parent.
    pub(crate) row: Row,
    /// Port and VLAN of a fake bridge.
    pub(crate) fake: Option<(Row, i64)>,
}

/// The tag of a port.
fn tag(work: &Work<'_>, port: Row) -> Result<Option<i64>, Stop> {
    let tag = work.named(port, "tag")?;
    Ok(tag.as_atom().and_then(ovsdb::value::Atom::as_integer))
}

/// The VLAN of a port that is a fake bridge.
pub(crate) fn fake_vlan(work: &Work<'_>, port: Row) -> Result<Option<i64>, Stop> {
    let is_fake = work.named(port, "fake_bridge")? == Datum::from(true);
    Ok(tag(work, port)?.filter(|vlan| is_fake && (0..=VLAN_MAX).contains(vlan)))
}

/// The rows of bridges.
pub(crate) fn real_bridges(ctx: &mut Context<'_>) -> Result<Vec<Row>, Stop> {
    let root = ctx.root()?;
    let table = ctx.work.table("Bridge")?;
    ctx.work.refs(root, "bridges", table)
}

/// The fake bridges of a row.
pub(crate) fn fakes_of(work: &Work<'_>, row: Row) -> Result<Vec<Bridge>, Stop> {
    let mut fakes = Vec::new();
    for port in ports(work, row)? {
        if let Some(vlan) = fake_vlan(work, port)? {
            fakes.push(Bridge { name: work.text(port, "name")?, row, fake: Some((port, vlan)) });
        }
    }
    Ok(fakes)
}

/// All bridges, fake ones after their parents.
pub(crate) fn all_bridges(ctx: &mut Context<'_>) -> Result<Vec<Bridge>, Stop> {
    let mut all = Vec::new();
    for row in real_bridges(ctx)? {
        all.push(Bridge { name: ctx.work.text(row, "name")?, row, fake: None });
        all.extend(fakes_of(&ctx.work, row)?);
    }
    Ok(all)
}

pub(crate) fn find_bridge(ctx: &mut Context<'_>, name: &str) -> Result<Option<Bridge>, Stop> {
    Ok(all_bridges(ctx)?.into_iter().find(|bridge| bridge.name == name))
}

pub(crate) fn need_bridge(ctx: &mut Context<'_>, name: &str) -> Result<Bridge, Stop> {
    find_bridge(ctx, name)?.ok_or_else(|| Stop::fatal(format!("no bridge named {name}")))
}

/// The row of a bridge that is not fake.
pub(crate) fn need_real_bridge(ctx: &mut Context<'_>, name: &str) -> Result<Row, Stop> {
    let bridge = need_bridge(ctx, name)?;
    if bridge.fake.is_some() {
        return Err(Stop::fatal(format!("{name} is a fake bridge")));
    }
    Ok(bridge.row)
}

/// The bridge that has a port of this row: a fake one if it has the port's tag.
pub(crate) fn holding(work: &Work<'_>, row: Row, port: Row) -> Result<Bridge, Stop> {
    let tag = tag(work, port)?;
    let mut fakes = fakes_of(work, row)?;
    fakes.retain(|fake| fake.fake.is_some_and(|(_, vlan)| Some(vlan) == tag));
    let real = || Ok(Bridge { name: work.text(row, "name")?, row, fake: None });
    fakes.into_iter().next().map_or_else(real, Ok)
}

impl Bridge {
    /// Whether the bridge has a port of its row.
    fn has(&self, work: &Work<'_>, fakes: &[Bridge], port: Row) -> Result<bool, Stop> {
        if fake_vlan(work, port)?.is_some() {
            return Ok(false);
        }
        let tag = tag(work, port)?;
        let owner = fakes.iter().find(|fake| fake.fake.is_some_and(|(_, vlan)| Some(vlan) == tag));
        Ok(match (owner, &self.fake) {
            (Some(owner), Some(_)) => owner.name == self.name,
            (None, None) => true,
            _ => false,
        })
    }

    /// Its ports, without those that are fake bridges.
    pub(crate) fn ports(&self, work: &Work<'_>) -> Result<Vec<Row>, Stop> {
        let fakes = fakes_of(work, self.row)?;
        let mut found = Vec::new();
        for port in ports(work, self.row)? {
            if self.has(work, &fakes, port)? {
                found.push(port);
            }
        }
        Ok(found)
    }

    /// The VLAN of new ports.
    pub(crate) fn vlan(&self) -> Option<i64> {
        self.fake.map(|(_, vlan)| vlan)
    }
}
