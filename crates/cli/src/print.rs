//! Everything that the program prints: text, tables, excerpts, progress, errors.

pub(crate) mod excerpt;
pub(crate) mod failure;
pub(crate) mod listing;
pub(crate) mod mask;
pub(crate) mod progress;
pub(crate) mod text;
