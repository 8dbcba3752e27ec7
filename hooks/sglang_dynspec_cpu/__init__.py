"""
SGLang's real scheduler with speculative decoding on a CPU, for tests and the demo.

SGLang runs on a CPU without CUDA graphs, streams or custom kernels, but four things are missing
for speculative decoding: the kernels of the ``sgl_kernel`` wheel (in ``shadow.packages``), an
attention backend that knows the speculative forward modes (`attention`), the overlap scheduler
(`overlap`) and models small enough to build in seconds (`models`, `constructed`). `engine` puts
them together; `demo` is the command that shows it.

Nothing here runs unless ``SGLANG_DYNSPEC_CPU_ENGINE=1``; see `entry`.
"""
