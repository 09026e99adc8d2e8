//! The store on PostgreSQL.
pub(crate) struct Postgres;
