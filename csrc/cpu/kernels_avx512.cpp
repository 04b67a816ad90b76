// The kernel table compiled for one instruction set (flags in csrc/build.py).
#include "addend.h"
#include "blocks.h"
#include "image.h"
#include "optimizer.h"
#include "recurrent.h"
#include "rotary.h"
#include "softmax.h"

namespace oneflow_cpu {

const Kernels& avx512_kernels() {
  static const Kernels table = {"avx512",
                                pointwise,
                                bias_gelu,
                                bias_gelu_backward,
                                bias_dropout,
                                softmax,
                                softmax_backward,
                                scale_tril,
                                adam,
                                momentum,
                                sgd,
                                blocks,
                                rotary,
                                dots,
                                dots_backward,
                                recurrent_pack,
                                lstm,
                                lstm_backward,
                                rnn,
                                rnn_backward,
                                gru,
                                gru_backward,
                                image_planes,
                                transpose<float>,
                                add_to_rows};
  return table;
}

}  // namespace oneflow_cpu
