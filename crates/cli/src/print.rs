//! Terminal output: text, tables, excerpts, progress and errors.

pub(crate) mod excerpt;
pub(crate) mod failure;
pub(crate) mod listing;
pub(crate) mod mask;
pub(crate) mod progress;
pub(crate) mod text;
pub(crate) mod wrapper;
