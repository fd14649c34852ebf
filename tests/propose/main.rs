//! What proposes children: the model behind its client, and the mechanical rewrites.

mod client;
mod gpu;
mod measured;
mod nvcc;
mod prompt;
mod recording;
mod replies;
mod rewrites;
mod scripted;
mod server;
mod small_model;
mod tensor;
mod transport;
