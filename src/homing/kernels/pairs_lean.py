"""pairs v2: centred outside, norms passed in."""
import functools, jax, jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from homing.kernels.pairs import LogSums, ROOT_EPSILON as EPS
X3=lax.DotAlgorithmPreset.TF32_TF32_F32_X3; X1=lax.DotAlgorithmPreset.TF32_TF32_F32
class Cfg: rows=16; chunk=128; warps=4; stages=2; second=X1; first=X3; interpret=False
def dot(a,b,p): return lax.dot_general(a,b,(((1,),(0,)),((),())),precision=lax.Precision.HIGHEST if Cfg.interpret else p)
def logits(x,y,xx,yy):
    d=jnp.maximum(xx[:,None]+yy[None,:]-2*dot(x,y.T,Cfg.first),0)+EPS
    inv=lax.rsqrt(d); return -d*inv, inv
def k_sums(both,norms,sums):
    R,C=Cfg.rows,Cfg.chunk
    side,rows=pl.program_id(0),pl.ds(pl.program_id(1)*R,R)
    x=both[side,rows,:]; xx=norms[side,rows]
    def chunk(j,c):
        top,total=c; o=pl.ds(j*C,C)
        f,_=logits(x,both[1-side,o,:],xx,norms[1-side,o])
        hi=jnp.maximum(top,jnp.max(f,axis=1))
        return hi,total*jnp.exp(top-hi)+jnp.sum(jnp.exp(f-hi[:,None]),axis=1)
    n=both.shape[1]//C
    c=(jnp.full((R,),-1e30,jnp.float32),jnp.zeros((R,),jnp.float32))
    c=chunk(0,c) if n==1 else lax.fori_loop(0,n,chunk,c)
    sums[side,rows]=c[0]+jnp.log(c[1])
def k_slopes(both,norms,sums,slopes,out):
    R,C=Cfg.rows,Cfg.chunk
    side,first=pl.program_id(0),pl.program_id(1)*R; rows=pl.ds(first,R)
    x=both[side,rows,:]; xx=norms[side,rows]; own,os=sums[side,rows],slopes[side,rows]
    def chunk(j,c):
        w,acc=c; o=pl.ds(j*C,C); y=both[1-side,o,:]
        f,inv=logits(x,y,xx,norms[1-side,o])
        s=os[:,None]*jnp.exp(f-own[:,None])+slopes[1-side,o][None,:]*jnp.exp(f-sums[1-side,o][None,:])
        s*=inv
        return w+jnp.sum(s,axis=1),acc+dot(s,y,Cfg.second)
    n=both.shape[1]//C
    c=(jnp.zeros((R,),jnp.float32),jnp.zeros(x.shape,jnp.float32))
    c=chunk(0,c) if n==1 else lax.fori_loop(0,n,chunk,c)
    out[side,rows,:]=c[1]-c[0][:,None]*x
def params(): return dict(compiler_params=triton.CompilerParams(num_warps=Cfg.warps,num_stages=Cfg.stages),interpret=Cfg.interpret)
@jax.custom_vjp
def _sums(both,norms): return _f(both,norms)[0]
def _f(both,norms):
    n=both.shape[1]
    s=pl.pallas_call(k_sums,out_shape=jax.ShapeDtypeStruct((2,n),jnp.float32),grid=(2,n//Cfg.rows),name="pairs2_sums",**params())(both,norms)
    return s,(both,norms,s)
def _b(saved,slopes):
    both,norms,s=saved
    g=pl.pallas_call(k_slopes,out_shape=jax.ShapeDtypeStruct(both.shape,jnp.float32),grid=(2,both.shape[1]//Cfg.rows),name="pairs2_slopes",**params())(both,norms,s,slopes)
    return g,jnp.zeros_like(norms)
_sums.defvjp(_f,_b)
def log_sums(phi,psi,kind="l2",interpret=False):
    both=jnp.stack([phi,psi])-lax.stop_gradient(psi[0])
    norms=lax.stop_gradient(jnp.sum(both*both,-1))
    s=_sums(both,norms)
    diag=-jnp.sqrt(jnp.sum(jnp.square(phi-psi),-1)+EPS)
    return LogSums(s[0],s[1],diag)
