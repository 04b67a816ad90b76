"""Deep path of the deformable convolution."""

from .. import functional as _F

deform_conv2d = _F.deform_conv2d
