"""Settings of a run, frozen and checked when they are made, and the plan of whole numbers that follows from them.

`run` holds the whole of a run (`RunConfig`) and its JSON, `offpolicy` and `onpolicy` the settings and plans of the
two training loops, `presets` the tuned settings by name, `parsing` numbers as people write them.
"""
