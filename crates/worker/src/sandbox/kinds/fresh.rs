//! From nothing.

use std::sync::Arc;

use super::{Begun, Origin, StartKind};
use crate::instance::InstanceSpec;
use crate::sandbox::host::Host;

pub(super) struct Fresh;

impl StartKind for Fresh {
    fn begin<'a>(&self, host: &'a Arc<Host>, spec: &'a InstanceSpec) -> Begun<'a> {
        Box::pin(async move {
            let first = host.first_process(spec.network, &spec.id, None).await?;
            Ok(Origin { first, zygote: None, restore: None, waiting: None, made_ahead: false })
        })
    }
}
