"""Command lines that are refused: arguments of `homing train`, and whole lines of the other commands."""

TRAIN = """
crll reacher
crl
crl reachr
crl reacher ant
--cpu
3 reacher
crl 3
crl reacher --preset no
crl reacher --preset
crl reacher --presett paper
crl reacher --seeds 0
crl reacher --seeds -1
crl reacher --seeds 1.5
crl reacher --seeds 100000000
crl reacher --seeds x
crl reacher --seeds 1e400
crl reacher --seed-list 1,1
crl reacher --seed-list a
crl reacher --seed-list ,
crl reacher --seed-list -1
crl reacher --seed-list 99999999999
crl reacher --seeds 2 --seed-list 1,2
crl reacher --steps 0
crl reacher --steps -5
crl reacher --steps 1e12
crl reacher --steps many
crl reacher --steps 1.5
crl reacher --steps 10
crl reacher --steps 1M --total-steps 1M
crl reacher --episode-length 0
crl reacher --episode-length 1e12
crl reacher --episode-length -1
crl reacher --physics warp
crl reacher --reward gold
crl ant_push --physics spring
crl reacher --eval-env mars
crl reacher --eval-env ant
crl reacher --env-option task.within
crl reacher --env-option task.within=
crl reacher --env-option task.within=NaN
crl reacher --env-option task.within=Infinity
crl reacher --env-option task.within=0
crl reacher --env-option task.within=-1
crl reacher --env-option task.within=1e9
crl reacher --env-option task.within=near
crl reacher --env-option task.within=[1]
crl reacher --env-option task.within={}
crl reacher --env-option task.withn=1
crl reacher --env-option =1
crl reacher --env-option task=1
crl reacher --env-option task.goals.radius=-1
crl reacher --env-option task.goals.radius=NaN
crl reacher --env-option task.within=0.1 task.within=0.2
crl ant_u_maze --env-option arena.layout=v
crl ant_u_maze --env-option arena.cell=-1
crl ant_u_maze --env-option arena.cell=NaN
crl reacher --devices 0
crl reacher --devices -1
crl reacher --devices many
crl reacher --devices 100000000
crl reacher --objective none
crl reacher --energy l3
crl reacher --critic-net.activation sin
crl reacher --critic-net.dtype float8
crl reacher --critic-net.residual some
crl reacher --critic-net.residual blocks --critic-net.depth 3
crl reacher --critic-net.depth 1000
crl reacher --replay-dtype float8
crl reacher --replay-size 5
crl reacher --prefill-steps 100000
crl reacher --unroll-length 40000
crl reacher --batch-size 1
srl reacher --batch-size 1
crl reacher --representation-dim 1 --survival-head
crl reacher --wandb maybe
crl reacher --tensorboard 3
crl reacher --her
crl reacher --minibatches 3
ppo reacher --replay-size 100
ppo reacher --num-envs 100
sac reacher --her-strategy nearest
sac reacher --her --reward dense --replay-dtype float16
srl reacher --future-ratio 0.9 --current-ratio 0.9
crl reacher --updates-per-step 1/0
crl reacher --updates-per-step 1e-12
crl reacher --updates-per-step -1/16
crl reacher --import
crl reacher --import no_such_module
crl reacher --import 3x
crl reacher --import a/b
crl reacher --import=
crl reacher --out /proc/run
crl reacher --out ""
crl reacher --out /dev/null
crl reacher --out /dev/null/run
crl reacher --multi-host
"""

LONG = "a" * 300
OTHERS = f"""
trian
trainn crl ant
3
-x
--no-such-flag
envs zzz
envs --jsn
envs a b
doctor now
policies no_such_policy
policies /nowhere/x.safetensors
policies --jsn
resume
resume /nowhere
resume .
resume {LONG}
resume . --devices 0
eval
eval /nowhere
eval .
eval no_such_policy
eval ant --episodes 0
eval ant --episodes -1
eval ant --episodes 1e12
eval ant --episodes nan
eval ant --seed -1
eval ant --seed 99999999999999999999999
eval ant --seed x
eval ant --which first
eval {LONG}
export
export . --out x.safetensors
export /nowhere --out x.safetensors
export . --out x.txt
export . --out .
export . --out /proc/x.safetensors
export . --out {LONG}.safetensors
export . --out x.safetensors --episodes 0
export . --out x.safetensors --which first
render
render ant
render antt --out x.png
render ant --out x.bmp
render ant --out x
render ant --out .
render ant --out /proc/x.png
render ant --out {LONG}.png
render ant --out x.png --width 0
render ant --out x.png --width 1e9
render ant --out x.png --width -3
render ant --out x.png --height 1e9
render ant --out x.png --height nan
render ant --out x.png --steps 0
render ant --out x.png --steps 1e12
render ant --out x.png --episodes 0
render ant --out x.png --episodes 1e12
render ant --out x.png --start-seed -1
render ant --out x.png --start-seed 1e30
render ant --out x.png --policy best
render ant --out x.png --policy zero --paths
render ant --out x.png --policy zero --map goals
render ant --out x.png --paths --map goals
render ant --out x.png --map walls
render ant --out x.png --policy zero --physics warp
render ant --out x.png --policy zero --env-option task.within
render ant --out x.png --policy zero --env-option task.within=-1
render ant --out x.png --policy zero --env-option task.wthin=1
render ant reacher --out x.png --policy zero
render . --out x.png
render /nowhere --out x.png
play antt
play .
play /nowhere
play ant --env mars
play ant --seed -1
play ant --which first
play ant --port -1
report /nowhere
report .
report . --out /proc/x.html
report . --out .
report . --out {LONG}.html
report . --csv /proc/x.csv
report . --figures /dev/null
report . --by color
report . --formats bmp
watch /nowhere --no-browser
watch . --no-browser --port 99999
watch . --no-browser --port -1
watch . --no-browser --by color
bench trian
bench physics --env mars
bench physics --num-envs 0
bench physics --num-envs -1
bench physics --num-envs 1e10
bench physics --steps 0
bench physics --steps 1e12
bench physics --repeats 0
bench physics --repeats 1e9
bench physics --env reacher --physics warp
bench physics --out /proc/x.json
bench physics --out .
bench train --env mars
bench train --agent no
bench train --preset no
bench train --seconds 0
bench train --seconds nan
bench train --seconds inf
bench train --seconds -1
bench train --seeds 0
bench train --num-envs 0
bench train --batch-size 0
bench train --prefill-steps -1
bench train --replay-dtype float8
bench train --net-dtype float8
bench train --out /proc/x.json
bench learner --env mars
bench learner --agent no
bench learner --seconds 0
bench learner --seeds 0
bench learner --batch-size 1
bench learner --batch-size 0
bench scaling all
bench scaling --what planets
bench scaling --nets 3by3
bench scaling --env mars
bench scaling --seconds nan
bench scaling --figure x.bmp
bench scaling --figure /proc/x.png
bench scaling --out .
study pln paper/objectives
study list --jsn
study plan
study plan no_such_study
study plan no.toml
study plan paper/objectives --scale 0
study plan paper/objectives --scale 2
study plan paper/objectives --scale nan
study plan paper/objectives --seeds 0
study plan paper/objectives --seeds 1e9
study plan paper/objectives --memory nan
study plan paper/objectives --memory 0
study plan paper/objectives --memory -1
study plan paper/objectives --memory inf
study plan paper/objectives --population 0
study plan paper/objectives --workers -1
study plan paper/objectives --workers 1e9
study plan paper/objectives --only env
study plan paper/objectives --only planet=mars
study plan paper/objectives --only env=mars
study plan paper/objectives --set num_envs
study plan paper/objectives --set num_envs=0
study plan paper/objectives --set gamma=2
study plan paper/objectives --set gama=0.9
study plan paper/objectives --set critic_lr=NaN
study plan paper/objectives --set net.width=0
study plan paper/objectives --set net.widht=3
study plan paper/objectives --set seeds=x
study plan paper/objectives --set total_steps=many
study plan paper/objectives --set env_options=3
study run no_such_study
study run paper/objectives --executor cloud
study run paper/objectives --scale 0
study run paper/objectives --out /proc/x
study run paper/objectives --out /dev/null
study retry no_such_study
study retry .
study status .
study status no_such_study
study report .
study report /nowhere.csv
study report no_such_study
study merge --out x.txt
study merge --out x.csv
study merge . --out x.csv
study merge /nowhere.csv --out x.csv
study work . x
study work .
study work /nowhere
study work . --dead-after 0
study work . --dead-after nan
study work . --workers -1
quickstart --out /proc/x
quickstart --out /dev/null
completion
completion powershell
"""
