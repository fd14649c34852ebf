//! What a task wants to be measured against: a library's product, a PyTorch expression, a kernel of its own.
//! Nothing here runs any of it.

use super::Problem;

/// A baseline to measure where its provider is present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// Shown in reports: `torch.sum`.
    pub name: String,
    /// Who computes it, and how.
    pub operation: Operation,
}

/// Who computes a baseline, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A matrix product through cuBLASLt.
    Product(Multiplication),
    /// A Python expression over the parameters, with `torch` and `F` (torch.nn.functional) at hand; a tuple
    /// where there are several outputs.
    Torch(String),
    /// The same with functions that are graphs of cuDNN's: `matmul(a, b)`, `attention(q, k, v, causal=False)`
    /// giving the output and the log-sum-exp, and `attention_backward(q, k, v, o, do, lse, causal=False)`.
    Cudnn(String),
    /// A PTX source in the task's folder.
    Kernel(String),
    /// CUDA C in the task's folder, with a `//@` header like a source's.
    Cuda(String),
}

/// `c = a @ b`, each factor possibly transposed: `c = a @ b.T`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multiplication {
    /// The product.
    pub c: String,
    /// The first factor.
    pub a: Factor,
    /// The second factor.
    pub b: Factor,
}

/// A factor of a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Factor {
    /// The parameter.
    pub name: String,
    /// Whether its transpose is meant.
    pub transposed: bool,
}

/// The extents of a product: C is m × n, each element a sum of k terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Rows of C.
    pub m: u64,
    /// Columns of C.
    pub n: u64,
    /// Terms of each sum.
    pub k: u64,
}

impl Multiplication {
    /// Reads `c = a @ b.T`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (c, product) = text.split_once('=')?;
        let (a, b) = product.split_once('@')?;
        let is_name = |name: &str| {
            name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let factor = |text: &str| {
            let text = text.trim();
            let (name, transposed) = match text.strip_suffix(".T") {
                Some(name) => (name, true),
                None => (text, false),
            };
            is_name(name).then(|| Factor {
                name: name.to_owned(),
                transposed,
            })
        };
        let c = c.trim();
        Some(Self {
            c: is_name(c).then(|| c.to_owned())?,
            a: factor(a)?,
            b: factor(b)?,
        })
    }

    /// The extents at a problem's size; an error says which shapes do not fit.
    pub fn extents(&self, problem: &Problem) -> Result<Extents, String> {
        let shape = |name: &str| -> Result<[u64; 2], String> {
            let buffer = problem
                .buffer(name)
                .ok_or_else(|| format!("`{name}` is no buffer of the task"))?;
            <[u64; 2]>::try_from(buffer.shape.as_slice())
                .map_err(|_| format!("`{name}` of shape {:?} is no matrix", buffer.shape))
        };
        let factor = |factor: &Factor| {
            let [rows, columns] = shape(&factor.name)?;
            Ok::<_, String>(if factor.transposed {
                [columns, rows]
            } else {
                [rows, columns]
            })
        };
        let ([m, k], [k_b, n]) = (factor(&self.a)?, factor(&self.b)?);
        let c = shape(&self.c)?;
        if k != k_b || c != [m, n] {
            return Err(format!(
                "{m} × {k} times {k_b} × {n} does not give {} of shape {c:?}",
                self.c
            ));
        }
        Ok(Extents { m, n, k })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_read_with_their_transposes() {
        let plain = Multiplication::parse("c = a @ b").expect("a product");
        assert_eq!((plain.c.as_str(), plain.a.transposed), ("c", false));
        let gemm = Multiplication::parse(" out=x.T@w_2.T ").expect("a product");
        assert_eq!((gemm.a.name.as_str(), gemm.b.name.as_str()), ("x", "w_2"));
        assert!(gemm.a.transposed && gemm.b.transposed);
        for wrong in [
            "sgemm",
            "c = a",
            "c = a * b",
            "c = a @ b + d",
            "= a @ b",
            "c = @ b",
        ] {
            assert_eq!(Multiplication::parse(wrong), None, "{wrong}");
        }
    }
}
