//! `set_tunnel`, `set_tunnel64`: set the tunnel key.

use super::prelude::*;
use crate::put::put_set;
use flow::fields::FieldId;
use flow::text::number::{hex, u64_argument};

/// Sets the tunnel key (`NXAST_SET_TUNNEL`, `NXAST_SET_TUNNEL64`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetTunnel {
    /// Key.
    pub id: u64,
    /// Written in the 64-bit form.
    pub wide: bool,
}

impl SetTunnel {
    /// The key, if it fits the 32-bit form.
    fn narrow(&self) -> Option<u32> {
        u32::try_from(self.id).ok().filter(|_| !self.wide)
    }
}

fn read(r: &mut Reader<'_>) -> Res<Action> {
    r.skip(2)?;
    Ok(SetTunnel { id: r.u32()?.into(), wide: false }.into())
}

fn read64(r: &mut Reader<'_>) -> Res<Action> {
    r.skip(6)?;
    Ok(SetTunnel { id: r.u64()?, wide: true }.into())
}

impl OfAction for SetTunnel {
    const NAMES: &'static [&'static str] = &["set_tunnel", "set_tunnel64"];
    const ROWS: &'static [Row] = &[nx(2, Len::Is(16), read), nx(9, Len::Is(24), read64)];
    writes_a_field!();

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        if w.version >= Version::V12 {
            return put_set(w, FieldId::TunId, self.id.into());
        }
        match self.narrow() {
            Some(id) => nicira(w, 2, |w| {
                w.zeros(2);
                w.u32(id);
            }),
            None => nicira(w, 9, |w| {
                w.zeros(6);
                w.u64(self.id);
            }),
        }
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let id = u64_argument(text.value())?;
        let wide = text.name == "set_tunnel64" || id > u64::from(u32::MAX);
        out.push(SetTunnel { id, wide }.into());
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        let name = if self.narrow().is_some() { "set_tunnel" } else { "set_tunnel64" };
        format!("{name}:{}", hex(self.id.into()))
    }

    fn check(&self, _checker: &mut Checker<'_>) -> Res<()> {
        Ok(())
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        x.state().0.tun_id = self.id;
    }
}
