&[
    ("assets/console-BzJjVR4F.css", include_bytes!("assets/console-BzJjVR4F.css").as_slice()),
    ("assets/console-CJ2jNPqk.js", include_bytes!("assets/console-CJ2jNPqk.js").as_slice()),
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
