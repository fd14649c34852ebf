//! What proposes children: the model behind its client, and the mechanical rewrites.

mod client;
mod recording;
mod server;
