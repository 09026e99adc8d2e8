//! Tests of the agent API with plain HTTP requests and with Letta's own clients.

mod agents;
mod console;
mod conversations;
mod decisions;
mod history;
mod keys;
mod list_costs;
mod lists;
mod messages;
mod nodes;
mod own;
mod promised;
mod refused;
mod roles;
mod runs;
mod scene;
mod sdk;
mod simulated;
mod tenant_routes;
mod tenants;
