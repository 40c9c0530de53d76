//! `delete_field`: removes tunnel metadata.

use super::prelude::*;
use flow::fields::FieldId;
use flow::text::{field_by_name, field_by_subfield_name};
use ofp_wire::nxm;

/// Removes a tunnel option from the packet (`NXAST_DELETE_FIELD`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DeleteField(pub FieldId);

/// `NXAST_DELETE_FIELD`.
const NXAST: u16 = 50;

fn read(r: &mut Reader<'_>) -> Res<Action> {
    nxm::read_field(r).map(|field| DeleteField(field).into())
}

impl OfAction for DeleteField {
    const NAMES: &'static [&'static str] = &["delete_field"];
    const ROWS: &'static [Row] = &[nx(NXAST, Len::Is(24), read)];
    const STAGE: Stage = Stage::Apply;
    const REVERSIBLE: bool = true;

    fn put(&self, w: &mut Writer, _cx: &mut PutContext<'_>) {
        nicira(w, NXAST, |w| {
            nxm::put_nx_header(w, self.0);
            w.zeros(if nxm::has_long_nx_header(self.0) { 6 } else { 10 });
        });
    }

    fn parse(text: &Argument<'_>, out: &mut Vec<Action>) -> Parsed<()> {
        let name = text.value();
        match field_by_name(name).or_else(|| field_by_subfield_name(name)) {
            Some(field) if nxm::has_header(field) => out.push(DeleteField(field).into()),
            Some(_) | None => return fail(name, format!("unknown field `{name}'")),
        }
        Ok(())
    }

    fn format(&self, _ports: &dyn PortNames) -> String {
        format!("delete_field:{}", self.0.def().name)
    }

    fn check(&self, _checker: &mut Checker<'_>) -> Res<()> {
        if self.0.metadata_index().is_some() { Ok(()) } else { Err(ErrorKind::BacBadArgument) }
    }

    fn check_text(&self, _checker: &mut TextChecker) -> Result<(), String> {
        match self.0.metadata_index() {
            Some(_) => Ok(()),
            None => {
                let name = self.0.def().name;
                Err(format!("delete_field {name}: only tunnel metadata can be deleted (OFPBAC_BAD_ARGUMENT)"))
            }
        }
    }

    fn protocols(&self) -> Protocols {
        Protocols::ANY
    }

    fn set_place(&self) -> SetPlace {
        SetPlace::Never
    }

    fn references(&self, visit: &mut dyn FnMut(Reference)) {
        self.0.metadata_index().into_iter().for_each(|i| visit(Reference::TunMetadata(i)));
    }

    fn translate<X: Translator>(&self, x: &mut X) {
        let tlv = x.tlv();
        tlv.delete(self.0, x.state().0);
        x.detail(|| format!("delete {}", self.0.def().name));
    }
}
